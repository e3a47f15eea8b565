package control

import (
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/spec/terms"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Impossible says why no trial of a spec could ever run on the nodes that are up, were they empty; "" if one could, if its trials
// run elsewhere, or if no node is up.
func (l *Loop) Impossible(spec *outbidv1.SweepSpec) string {
	nodes := slices.Clone(l.view.Load().Inventory.Nodes)
	if spec.GetExternal() != nil || len(nodes) == 0 {
		return ""
	}
	for i := range nodes {
		nodes[i].Draining = false // it may be opened again
	}
	compiled, err := terms.Of(spec)
	if err != nil { // Submit says what is wrong
		return ""
	}
	return cluster.Impossible(nodes, compiled.Demand)
}
