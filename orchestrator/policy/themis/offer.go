package themis

import (
	"github.com/outbid-dev/outbid/orchestrator/bidder"
	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/policy"
)

// offerTo lists free devices and those on expired leases by node and type, and sets in each asked sweep's state which
// lots it may use.
func offerTo(v *policy.View, s *supply, states []*bidder.AppState) *bidder.Offer {
	try := v.Statement()
	defer try.Discard()
	for _, j := range s.expired {
		v.Free.Release(j.Gang(), j.Demand)
	}
	o := &bidder.Offer{}
	for i := range v.Nodes {
		n := &v.Nodes[i]
		if n.Draining {
			continue
		}
		for _, kind := range v.Free.Types() {
			if k := v.Free.FreeAt(i, kind); k > 0 {
				o.Lots = append(o.Lots, bidder.Lot{
					Node: n.Name, Rack: n.Rack, Type: kind, Free: k, Slots: v.Free.FreeSlots(i, kind, nil),
				})
			}
		}
	}
	for _, state := range states {
		state.Free = usable(v, state.Demand, o)
	}
	return o
}

// usable returns how much of each lot a sweep may use, or nil if it may use all.
func usable(v *policy.View, d cluster.Demand, o *bidder.Offer) []int {
	if d.Plain() {
		return nil
	}
	node := 0
	free := make([]int, len(o.Lots))
	for i := range o.Lots {
		l := &o.Lots[i]
		for v.Nodes[node].Name != l.Node {
			node++
		}
		if d.Accepts(l.Type) && v.Free.Fits(cluster.Gang{{Node: node}}, d) {
			free[i] = l.Free
		}
	}
	return free
}
