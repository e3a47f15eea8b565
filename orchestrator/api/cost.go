package api

import (
	"fmt"
	"slices"
	"strings"

	"github.com/outbid-dev/outbid/orchestrator/spec/terms"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// addCost adds to a preview what its device-hours cost, and warnings about the sweep's limit of the cost.
func addCost(resp *outbidv1.PreviewSweepResponse, s *outbidv1.SweepSpec, prices *outbidv1.DevicePrices, nodes []*outbidv1.Node) {
	kinds, most := usableTypes(s, nodes), s.GetLimits().GetCost()
	if state.DearestHour(prices) == 0 || s.GetExternal() != nil {
		return
	}
	resp.Currency = prices.GetCurrency()
	if none := state.Unpriced(prices, kinds); most > 0 && len(none) > 0 {
		resp.Warnings = append(resp.Warnings, fmt.Sprintf("limits.cost: no price for devices of type %s, so an hour of one counts as %s, the "+
			"highest price", strings.Join(none, ", "), state.Amount(state.DearestHour(prices), prices)))
	}
	if resp.GetDeviceHours() == 0 || len(kinds) == 0 {
		return
	}
	costs := make([]float64, len(kinds))
	for i, kind := range kinds {
		costs[i] = resp.GetDeviceHours() * state.HourPrice(prices, kind)
	}
	resp.LeastCost, resp.MostCost = new(slices.Min(costs)), new(slices.Max(costs))
	if most > 0 && resp.GetMostCost() > most {
		resp.Warnings = append(resp.Warnings, fmt.Sprintf("limits.cost: what the tuner plans costs up to %.3g; the sweep ends after %s",
			resp.GetMostCost(), state.Amount(most, prices)))
	}
}

// usableTypes returns the types of the devices of nodes that are up and that a sweep may use.
func usableTypes(s *outbidv1.SweepSpec, nodes []*outbidv1.Node) []string {
	compiled, err := terms.Of(s)
	if err != nil {
		return nil
	}
	var kinds []string
	for _, n := range nodes {
		if n.GetState() != outbidv1.NodeState_NODE_STATE_UP {
			continue
		}
		for _, d := range n.GetInfo().GetDevices() {
			if compiled.Demand.Accepts(d.GetType()) && !slices.Contains(kinds, d.GetType()) {
				kinds = append(kinds, d.GetType())
			}
		}
	}
	return kinds
}
