package themis

import (
	"cmp"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/policy"
)

// hasUnlikeTypes reports whether leftovers are assigned by measured rates, which only matters if there are several
// device types.
func (al *allocator) hasUnlikeTypes() bool { return al.byRate && len(al.plan.Free().Types()) > 1 }

// giveByRate gives one trial of a sweep the free place of the type on which its measured rate is highest. A trial whose
// lease has expired keeps its own devices unless a move gains more time than a restart costs.
func (al *allocator) giveByRate(i, each int, none *policy.Unplaceable) bool {
	s := &al.shares[i]
	for _, j := range s.open {
		least := max(1, j.Demand.Min)
		n := al.limitToPart(i, min(max(least, each), max(least, j.Demand.Max)))
		if n < least || none.Covers(j.Demand) && !al.lost[j] {
			continue
		}
		g, rate := al.fastestType(j, n, least)
		if al.lost[j] {
			left, own := stepsLeft(al.v, j), al.v.Rate(j, j.Gang())
			if rate > own && left/max(own, 1e-9)-left/rate > al.set.restart && al.placeOrSetAside(i, j, g, "left over from the auction, and faster than where it was") {
				al.recordGang(i, j, g)
				s.leftover = addToLots(al.v, s.leftover, g)
				return true
			}
			continue
		}
		if j.Running() && !al.supply.isResting[j] || rate <= 0 || !al.placeOrSetAside(i, j, g, leftOver) {
			continue
		}
		al.recordGang(i, j, g)
		s.leftover = addToLots(al.v, s.leftover, g)
		return true
	}
	return false
}

// fastestType returns a free place of the fastest type that has one, with as many of n devices as one node has, and the
// trial's rate there, or 0 without a place.
func (al *allocator) fastestType(j *policy.Job, n, least int) (cluster.Gang, float64) {
	free := al.plan.Free()
	kinds := slices.Clone(free.Types())
	slices.SortStableFunc(kinds, func(a, b string) int {
		return cmp.Compare(j.Speeds.Rate(b, n, cluster.SameMachine), j.Speeds.Rate(a, n, cluster.SameMachine))
	})
	for _, kind := range kinds {
		if !j.Demand.Accepts(kind) || free.FreeOf(kind) < least {
			continue
		}
		if g, rate := al.placeOfType(j, n, least, kind); rate > 0 {
			return g, rate
		}
	}
	return nil, 0
}

// placeOfType returns a free place of a type for up to n devices: on one node, or over several if the trial is faster
// there.
func (al *allocator) placeOfType(j *policy.Job, n, least int, kind string) (cluster.Gang, float64) {
	free, alone := al.plan.Free(), j.Demand
	alone.MultiNode = false
	var best cluster.Gang
	rate := 0.0
	for k := n; ; k = max(least, k/2) {
		if g, ok := free.Place(alone, k, kind); ok {
			best, rate = g, al.v.Rate(j, g)
			break
		}
		if k <= least {
			break
		}
	}
	if !j.Demand.MultiNode || best.Size() >= n {
		return best, rate
	}
	for k := min(n, free.FreeOf(kind)); k >= least && k > best.Size(); k /= 2 {
		if g, ok := free.Place(j.Demand, k, kind); ok {
			if spread := al.v.Rate(j, g); spread > rate {
				return g, spread
			}
		}
	}
	return best, rate
}
