package auction

import (
	"cmp"
	"slices"
)

// searcher searches the rows that the bound does not exclude, depth first.
type searcher struct {
	*solver
	order    []searched
	effort   int
	restGain []float64
}

// searched holds a bidder's rows, highest gain first, with -1 for none.
type searched struct {
	bidder int
	rows   []ranked
}

type ranked struct {
	row  int
	gain float64
}

// search improves the best choice and reports whether it was exhaustive.
func (s *solver) search(effort int) bool {
	x := &searcher{solver: s, effort: effort}
	base, slack := 0.0, 0.0
	for c, price := range s.price {
		base += price * float64(s.room[c])
	}
	top := make([]float64, s.bidders())
	for b := range top {
		if s.isOut[b] {
			continue
		}
		_, top[b] = s.favourite(b)
		slack += top[b]
	}
	bound := base + slack
	for b := range top {
		if s.isOut[b] {
			continue
		}
		o := searched{bidder: b}
		// A row whose gain is that far below the bidder's best is in no better choice.
		for r := s.start[b]; r < s.start[b+1]; r++ {
			if g := s.gain(r); bound-(top[b]-g) > s.worth+1e-9 {
				o.rows = append(o.rows, ranked{r, g})
			}
		}
		if bound-top[b] > s.worth+1e-9 {
			o.rows = append(o.rows, ranked{-1, 0})
		}
		slices.SortStableFunc(o.rows, func(a, b ranked) int { return cmp.Compare(b.gain, a.gain) })
		if len(o.rows) == 0 {
			return true
		}
		x.order = append(x.order, o)
	}
	// Bidders with few rows come first: they decide most with the least branching.
	slices.SortStableFunc(x.order, func(a, b searched) int { return cmp.Compare(len(a.rows), len(b.rows)) })
	x.restGain = make([]float64, len(x.order)+1)
	for i := len(x.order) - 1; i >= 0; i-- {
		x.restGain[i] = x.restGain[i+1] + x.order[i].rows[0].gain
	}
	s.clearChoice()
	x.descend(0, base)
	return x.effort > 0
}

// descend tries the rows of a bidder and of all after it. so is the part of the bound that is fixed: the value of the
// room at the prices, and the gains of the rows chosen.
func (x *searcher) descend(depth int, so float64) {
	if depth == len(x.order) {
		x.recordBest()
		return
	}
	o := &x.order[depth]
	for _, r := range o.rows {
		if so+r.gain+x.restGain[depth+1] <= x.worth+1e-9 {
			return // the others gain less
		}
		if x.effort--; x.effort <= 0 {
			return
		}
		if r.row >= 0 && !x.fits(o.bidder, r.row) {
			continue
		}
		x.switchTo(o.bidder, r.row)
		x.descend(depth+1, so+r.gain)
		x.switchTo(o.bidder, -1)
		if x.effort <= 0 {
			return
		}
	}
}
