package control

import (
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/spec/terms"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Impossible returns why no trial of a spec could ever run on the nodes that are up, even if they were idle. It
// returns "" if one could, if the trials run elsewhere, or if no node is up.
func (l *Loop) Impossible(spec *outbidv1.SweepSpec) string {
	nodes := slices.Clone(l.view.Load().Inventory.Nodes)
	if spec.GetExternal() != nil || len(nodes) == 0 {
		return ""
	}
	for i := range nodes {
		nodes[i].Draining = false // it may be opened again
	}
	compiled, err := terms.Of(spec)
	if err != nil { // Submit returns this error
		return ""
	}
	return cluster.Impossible(nodes, compiled.Demand)
}
