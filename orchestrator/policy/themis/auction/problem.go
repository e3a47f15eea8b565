package auction

import (
	"cmp"
	"math"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/bidder"
)

// problem is an auction in numbers. The rows of all bidders are consecutive.
type problem struct {
	lots []bidder.Lot
	// start is the index of each bidder's first row, plus the total.
	start []int
	// worth of each row is log(rho of nothing / rho of the row), above 0. index is its place in the bidder's table, and
	// gangs what it holds.
	worth []float64
	index []int
	gangs [][]bidder.Gangs
	// uses of each row begin at useStart.
	useStart []int
	uses     []use
	// room of each constraint.
	room []int32
	// exactCounts means that every choice within the constraints fits the nodes. grouped means that a choice that fits
	// the nodes may still exceed a group's limit.
	exactCounts, grouped bool
}

type use struct {
	constraint, n int32
}

func (p *problem) bidders() int { return len(p.start) - 1 }

func (p *problem) usesOf(row int) []use { return p.uses[p.useStart[row]:p.useStart[row+1]] }

// candidate is a row that may become part of the problem.
type candidate struct {
	worth float64
	index int
	uses  []use
}

// compile turns bids into a problem. It leaves out rows that are worth nothing, that the offer cannot hold, or that
// another row of the bidder dominates in worth and in every use.
func compile(lots []bidder.Lot, bidders []Bidder, limits []int) *problem {
	p := &problem{lots: lots, start: []int{0}, useStart: []int{0}, grouped: limits != nil}
	c := newCounters(lots, bidders)
	p.exactCounts = c.exact()
	groups := len(c.room) // the groups' constraints follow those of the lots
	for _, n := range limits {
		c.room = append(c.room, int32(n))
	}
	var all []candidate
	for i := range bidders {
		b := &bidders[i]
		all = all[:0]
		for r := range b.Rows {
			row := &b.Rows[r]
			if !Sound(row.Rho) || !(row.Rho < b.Nothing) {
				continue
			}
			uses, ok := c.rowUses(row.Gangs)
			if ok && limits != nil {
				uses, ok = c.addGroupUse(groups+b.Group, row.Gangs, uses)
			}
			if ok {
				all = append(all, candidate{math.Log(b.Nothing / row.Rho), r, uses})
			}
		}
		for _, k := range prune(all) {
			p.worth = append(p.worth, k.worth)
			p.index = append(p.index, k.index)
			p.gangs = append(p.gangs, b.Rows[k.index].Gangs)
			p.uses = append(p.uses, k.uses...)
			p.useStart = append(p.useStart, len(p.uses))
		}
		p.start = append(p.start, len(p.worth))
	}
	p.room = c.room
	p.dropSlack()
	return p
}

// prune returns the undominated candidates, best first.
func prune(all []candidate) []candidate {
	slices.SortStableFunc(all, func(a, b candidate) int { return cmp.Compare(b.worth, a.worth) })
	kept := all[:0]
	for _, c := range all {
		if !slices.ContainsFunc(kept, func(k candidate) bool { return usesAtMost(k.uses, c.uses) }) {
			kept = append(kept, c)
		}
	}
	return kept
}

// usesAtMost reports whether a uses at most as much of each constraint as b. Uses are sorted by constraint.
func usesAtMost(a, b []use) bool {
	k := 0
	for _, u := range a {
		for k < len(b) && b[k].constraint < u.constraint {
			k++
		}
		if k == len(b) || b[k].constraint != u.constraint || b[k].n < u.n {
			return false
		}
	}
	return true
}

// dropSlack removes constraints that would hold even if every bidder had its largest row.
func (p *problem) dropSlack() {
	most := make([]int32, len(p.room))
	largest := make([]int32, len(p.room))
	for b := range p.bidders() {
		clear(largest)
		for row := p.start[b]; row < p.start[b+1]; row++ {
			for _, u := range p.usesOf(row) {
				largest[u.constraint] = max(largest[u.constraint], u.n)
			}
		}
		for c := range most {
			most[c] += largest[c]
		}
	}
	number := make([]int32, len(p.room))
	var room []int32
	for c, m := range most {
		number[c] = -1
		if m > p.room[c] {
			number[c] = int32(len(room))
			room = append(room, p.room[c])
		}
	}
	at, from := 0, 0
	for row := range p.worth {
		end := p.useStart[row+1]
		for _, u := range p.uses[from:end] {
			if n := number[u.constraint]; n >= 0 {
				p.uses[at] = use{n, u.n}
				at++
			}
		}
		from, p.useStart[row+1] = end, at
	}
	p.uses, p.room = p.uses[:at], room
}
