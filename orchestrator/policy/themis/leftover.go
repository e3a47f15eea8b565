package themis

import (
	"math/rand/v2"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/policy"
)

const leftOver = "left over from the auction"

// leftovers distributes what is left, gang by gang in turns: to sweeps that were not asked, in random order, then to
// all, worst off first. rule is the option "leftover".
func (al *allocator) leftovers(asked []int, rule string, chance *rand.Rand) {
	if rule == "all" {
		al.giveOut(chance.Perm(len(al.shares)))
		return
	}
	was := make([]bool, len(al.shares))
	for _, i := range asked {
		was[i] = true
	}
	var unasked, rest []int
	for i := range al.shares {
		if was[i] {
			rest = append(rest, i)
		} else {
			unasked = append(unasked, i)
		}
	}
	if rule != "worst" {
		chance.Shuffle(len(unasked), func(i, k int) { unasked[i], unasked[k] = unasked[k], unasked[i] })
	}
	if rule == "keep" || rule == "gangs" {
		least := 1
		if rule == "gangs" {
			least = 2
		}
		for _, i := range unasked {
			for al.renewOne(i, least) {
			}
		}
	}
	al.giveOut(unasked, rest)
}

// giveOut distributes to sweeps in turns: within the parts of groups, if there are groups, then beyond them.
func (al *allocator) giveOut(turns ...[]int) {
	turns = al.lastLast(turns)
	if al.parts != nil {
		al.distributeParts(turns)
		al.distributeRest(turns)
	}
	al.shareOut(turns...)
}

// shareOut gives to each sweep in turn until none can take more: first gangs for trials without one, then forks. The
// gangs of trials that have too few to be forked are distributed again.
func (al *allocator) shareOut(turns ...[]int) {
	for freed := true; freed; {
		for _, turn := range turns {
			al.distribute(turn)
		}
		for _, turn := range turns {
			al.distributeForks(turn)
		}
		freed = false
		for _, c := range al.gathered {
			freed = al.disband(c) || freed
		}
	}
}

// lastLast moves the sweeps that Rules.Last selects to the end.
func (al *allocator) lastLast(turns [][]int) [][]int {
	var last []int
	for k := range turns {
		turns[k] = slices.DeleteFunc(turns[k], func(i int) bool {
			if al.order[i].leftoversOnly {
				last = append(last, i)
			}
			return al.order[i].leftoversOnly
		})
	}
	if last == nil {
		return turns
	}
	return append(turns, last)
}

// distribute gives to each sweep in turn until none can take more.
func (al *allocator) distribute(turn []int) {
	wanting := 0
	for _, i := range turn {
		wanting += len(al.shares[i].open)
	}
	if wanting == 0 {
		return
	}
	each := al.limitToPart(turn[0], al.devicesOnOffer()) / wanting
	var none policy.Unplaceable
	for len(turn) > 0 {
		still := turn[:0:0]
		for _, i := range turn {
			if al.plan.Free().FreeDevices() == 0 && (al.reclaimed || len(al.lost) == 0) {
				return
			}
			if al.giveOne(i, each, &none) {
				still = append(still, i)
			}
		}
		turn = still
	}
}

// giveOne gives one trial of a sweep its own devices back, or a gang to another.
func (al *allocator) giveOne(i, each int, none *policy.Unplaceable) bool {
	if al.order[i].leftoversOnly {
		al.reclaim() // a sweep that never bids can grow only here
	}
	if (al.hasUnlikeTypes() || al.order[i].leftoversOnly) && al.giveByRate(i, each, none) || al.renewOne(i, 1) {
		return true
	}
	s := &al.shares[i]
	for _, j := range s.open {
		least := max(1, j.Demand.Min)
		n := al.limitToPart(i, min(max(least, each), max(least, j.Demand.Max)))
		if j.Running() && !al.supply.isResting[j] || n < least || none.Covers(j.Demand) {
			continue
		}
		g, ok := al.findTogether(j.Demand, n, least, "")
		if !ok || !al.placeOrSetAside(i, j, g, leftOver) {
			none.Add(j.Demand)
			continue
		}
		al.recordGang(i, j, g)
		s.leftover = addToLots(al.v, s.leftover, g)
		return true
	}
	return false
}

// renewOne gives one trial of a sweep its own devices back, if the trial needs at least the given number.
func (al *allocator) renewOne(i, least int) bool {
	s := &al.shares[i]
	for _, j := range s.open {
		if max(1, j.Demand.Min) >= least && al.limitToPart(i, j.Gang().Size()) >= j.Gang().Size() && al.renew(i, j, leftOver) {
			al.recordGang(i, j, j.Gang())
			s.leftover, s.renewed = addToLots(al.v, s.leftover, j.Gang()), addToLots(al.v, s.renewed, j.Gang())
			return true
		}
	}
	return false
}
