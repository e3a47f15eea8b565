package baseline

import (
	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/policy"
)

// scored places waiting jobs in order of arrival on the node with the highest score that has room. The score is a
// function of how full a node is, from 0 to 1. A gang that fits on no single node spans as few as possible.
func scored(v *policy.View, reason string, score func(full float64) float64) policy.Plan {
	p := policy.Extend(v)
	var unplaceable policy.Unplaceable
	if p.Free().FreeDevices() == 0 {
		return p.Plan(reason, "")
	}
	for j := range v.Line() {
		if p.Free().FreeDevices() == 0 {
			break
		}
		if unplaceable.Covers(j.Demand) {
			continue
		}
		g, ok := bestScored(p.Free(), j.Demand, score)
		if !ok && j.Demand.MultiNode {
			g, ok = p.Free().Place(j.Demand, max(1, j.Demand.Min), "")
		}
		if !ok || !p.PlaceOn(j, g, reason) {
			unplaceable.Add(j.Demand)
		}
	}
	return p.Plan(reason, "")
}

// bestScored places a job on one node.
func bestScored(free *cluster.Capacity, d cluster.Demand, score func(full float64) float64) (cluster.Gang, bool) {
	bestNode, bestKind, bestSize, bestScore := -1, "", 0, 0.0
	for i := range free.Nodes() {
		size := len(free.Nodes()[i].Devices)
		left := free.FreeAt(i, "")
		if left == 0 || left < d.Min || !free.Fits(cluster.Gang{{Node: i}}, d) {
			continue
		}
		s := score(1 - float64(left)/float64(size))
		if bestNode >= 0 && s <= bestScore {
			continue
		}
		for _, kind := range free.Types() {
			if n := free.FreeFor(i, kind, d); n >= max(1, d.Min) && d.Accepts(kind) {
				bestNode, bestKind, bestSize, bestScore = i, kind, min(n, max(1, d.Max)), s
				break
			}
		}
	}
	if bestNode < 0 {
		return nil, false
	}
	return free.PlaceAt(bestNode, d, bestSize, bestKind)
}
