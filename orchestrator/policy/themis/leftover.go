package themis

import (
	"math/rand/v2"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/policy"
)

const leftOver = "left over from the auction"

// leftovers distributes what is left, gang by gang in turns: to sweeps that were not asked, in random order, then to
// all, worst off first. rule is the option "leftover".
func (p *placing) leftovers(asked []int, rule string, chance *rand.Rand) {
	if rule == "all" {
		p.giveOut(chance.Perm(len(p.shares)))
		return
	}
	was := make([]bool, len(p.shares))
	for _, i := range asked {
		was[i] = true
	}
	var unasked, rest []int
	for i := range p.shares {
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
			for p.renewOne(i, least) {
			}
		}
	}
	p.giveOut(unasked, rest)
}

// giveOut distributes to sweeps in turns: within the parts of groups, if there are groups, then beyond them.
func (p *placing) giveOut(turns ...[]int) {
	turns = p.lastLast(turns)
	if p.parts != nil {
		p.within(turns)
		p.lend(turns)
	}
	p.shareOut(turns...)
}

// shareOut gives to each sweep in turn until none can take more: first gangs for trials without one, then forks. The
// gangs of trials that have too few to be forked are distributed again.
func (p *placing) shareOut(turns ...[]int) {
	for freed := true; freed; {
		for _, turn := range turns {
			p.share(turn)
		}
		for _, turn := range turns {
			p.forks(turn)
		}
		freed = false
		for _, c := range p.gathered {
			freed = p.disband(c) || freed
		}
	}
}

// lastLast moves the sweeps that Rules.Last selects to the end.
func (p *placing) lastLast(turns [][]int) [][]int {
	var last []int
	for k := range turns {
		turns[k] = slices.DeleteFunc(turns[k], func(i int) bool {
			if p.order[i].last {
				last = append(last, i)
			}
			return p.order[i].last
		})
	}
	if last == nil {
		return turns
	}
	return append(turns, last)
}

// share gives to each sweep in turn until none can take more.
func (p *placing) share(turn []int) {
	wanting := 0
	for _, i := range turn {
		wanting += len(p.shares[i].open)
	}
	if wanting == 0 {
		return
	}
	each := p.may(turn[0], p.onOffer()) / wanting
	var none policy.Unplaceable
	for len(turn) > 0 {
		still := turn[:0:0]
		for _, i := range turn {
			if p.plan.Free().FreeDevices() == 0 && (p.reclaimed || len(p.lost) == 0) {
				return
			}
			if p.takeOne(i, each, &none) {
				still = append(still, i)
			}
		}
		turn = still
	}
}

// takeOne gives one trial of a sweep its own devices back, or a gang to another.
func (p *placing) takeOne(i, each int, none *policy.Unplaceable) bool {
	if p.order[i].last {
		p.reclaim() // a sweep that never bids can grow only here
	}
	if (p.unlike() || p.order[i].last) && p.giveByRate(i, each, none) || p.renewOne(i, 1) {
		return true
	}
	s := &p.shares[i]
	for _, j := range s.open {
		least := max(1, j.Demand.Min)
		n := p.may(i, min(max(least, each), max(least, j.Demand.Max)))
		if j.Running() && !p.supply.rests[j] || n < least || none.Covers(j.Demand) {
			continue
		}
		g, ok := p.together(j.Demand, n, least, "")
		if !ok || !p.place(i, j, g, leftOver) {
			none.Add(j.Demand)
			continue
		}
		p.served(i, j, g)
		s.leftover = book(p.v, s.leftover, g)
		return true
	}
	return false
}

// renewOne gives one trial of a sweep its own devices back, if the trial needs at least the given number.
func (p *placing) renewOne(i, least int) bool {
	s := &p.shares[i]
	for _, j := range s.open {
		if max(1, j.Demand.Min) >= least && p.may(i, j.Gang().Size()) >= j.Gang().Size() && p.renew(i, j, leftOver) {
			p.served(i, j, j.Gang())
			s.leftover, s.renewed = book(p.v, s.leftover, j.Gang()), book(p.v, s.renewed, j.Gang())
			return true
		}
	}
	return false
}
