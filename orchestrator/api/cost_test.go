package api

import (
	"strings"
	"testing"

	"google.golang.org/grpc/status"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

func (c *fakeControl) Nodes() []*outbidv1.Node {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nodes
}

// DevicePrices returns the prices that a test sets.
func (c *fakeControl) DevicePrices() *outbidv1.DevicePrices {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.prices
}

// A preview has the cost of the sweep on the devices that it may use: 24 steps of 150 s are an hour.
func TestPreviewsSayTheCost(t *testing.T) {
	t.Parallel()
	h := serve(t, func(c *Config) { c.Tokens = testTokens(t) })
	client := h.dial(t, token("eve"))
	node := func(kinds ...string) *outbidv1.Node {
		info := &outbidv1.NodeInfo{Name: kinds[0]}
		for _, kind := range kinds {
			info.Devices = append(info.Devices, &outbidv1.Device{Type: kind})
		}
		return &outbidv1.Node{State: outbidv1.NodeState_NODE_STATE_UP, Info: info}
	}
	set := func(nodes []*outbidv1.Node, prices *outbidv1.DevicePrices) {
		h.control.mu.Lock()
		defer h.control.mu.Unlock()
		h.control.nodes, h.control.prices = nodes, prices
	}
	nodes := []*outbidv1.Node{node("k80", "h100"), node("t4")}
	set(nodes, nil)
	limited := okSpec()
	limited.Limits.Cost = 3
	limited.Workload = &outbidv1.SweepSpec_Program{Program: &outbidv1.Program{Command: []string{"train"}}}
	ask := func(s *outbidv1.SweepSpec) (*outbidv1.PreviewSweepResponse, string) {
		resp, err := client.PreviewSweep(t.Context(), &outbidv1.PreviewSweepRequest{Spec: s, StepSeconds: 150})
		return resp, strings.Join(append(resp.GetWarnings(), status.Convert(err).Message()), "; ")
	}
	if _, got := ask(limited); !strings.Contains(got, "limits.cost: needs prices of devices, and this server has none; start it with --prices FILE") {
		t.Errorf("without prices: %q", got)
	}
	set(nodes, &outbidv1.DevicePrices{Currency: "EUR", DeviceHour: map[string]float64{"k80": 0.5, "h100": 4}})
	resp, got := ask(limited)
	for _, want := range []string{
		"no price for devices of type t4, so an hour of one counts as 4 EUR", "what the tuner plans costs up to 4; the sweep ends after 3 EUR",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q lacks %q", got, want)
		}
	}
	if resp.GetLeastCost() != 0.5 || resp.GetMostCost() != 4 || resp.GetCurrency() != "EUR" {
		t.Errorf("from %v to %v %s", resp.LeastCost, resp.MostCost, resp.GetCurrency())
	}
	limited.Resources = &outbidv1.Resources{Types: []string{"k80"}}
	if resp, got := ask(limited); resp.GetMostCost() != 0.5 || strings.Contains(got, "cost") {
		t.Errorf("on a cheap device %v, %q", resp.MostCost, got)
	}
}
