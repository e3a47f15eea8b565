package auction

import (
	"cmp"
	"math"
	"slices"
)

// relief is a bidder's change to a smaller row, with its cost for each unit of the constraint that it frees.
type relief struct {
	bidder, row int
	cost        float64
}

// repair changes bidders to smaller rows until no constraint is overdrawn. It takes the most overdrawn constraint
// first, and the change that costs least per unit freed at the current prices.
func (s *solver) repair() {
	for {
		worst, deepest := -1, int32(0)
		for c, left := range s.roomLeft {
			if left < deepest {
				worst, deepest = c, left
			}
		}
		if worst < 0 {
			return
		}
		all := s.reliefs[:0]
		for b := range s.bidders() {
			if r, ok := s.cheapestRelief(b, worst, deepest); ok {
				all = append(all, r)
			}
		}
		s.reliefs = all
		slices.SortStableFunc(all, func(a, b relief) int { return cmp.Compare(a.cost, b.cost) })
		for _, r := range all {
			if s.roomLeft[worst] >= 0 {
				break
			}
			if r.row < 0 || s.relieves(s.choice[r.bidder], r.row) {
				s.switchTo(r.bidder, r.row)
			}
		}
	}
}

// cheapestRelief returns a bidder's cheapest change that uses less of an overdrawn constraint.
func (s *solver) cheapestRelief(b, worst int, deepest int32) (relief, bool) {
	best := relief{bidder: b, row: -1, cost: math.Inf(1)}
	row := s.choice[b]
	if row < 0 {
		return best, false
	}
	used := s.usedOf(row, worst)
	if used == 0 {
		return best, false
	}
	gain := s.gain(row)
	best.cost = (gain + 1e-12) / float64(min(used, -deepest))
	for r := s.start[b]; r < s.start[b+1]; r++ {
		n := s.usedOf(r, worst)
		if n >= used {
			continue
		}
		if cost := (gain - s.gain(r) + 1e-12) / float64(min(used-n, -deepest)); cost < best.cost && s.relieves(row, r) {
			best.row, best.cost = r, cost
		}
	}
	return best, true
}

// relieves reports whether a change to another row overdraws no constraint further, which guarantees that repair
// terminates.
func (s *solver) relieves(old, row int) bool {
	for _, u := range s.usesOf(row) {
		left := s.roomLeft[u.constraint]
		if more := u.n - s.usedOf(old, int(u.constraint)); more > 0 && left < more {
			return false
		}
	}
	return true
}

func (s *solver) usedOf(row, constraint int) int32 {
	for _, u := range s.usesOf(row) {
		if int(u.constraint) == constraint {
			return u.n
		}
	}
	return 0
}

// improve gives bidders better rows while there is room, always the change that gains most at the current prices.
func (s *solver) improve() {
	for b := range s.next {
		s.next[b].known = false
	}
	for {
		bidder, best := -1, math.Inf(-1)
		for b := range s.next {
			if s.isOut[b] {
				continue
			}
			m := &s.next[b]
			// Room only shrinks here, apart from the bidder's own row, so only a row that no longer fits must be
			// replaced.
			if !m.known || m.row >= 0 && !s.fits(b, m.row) {
				*m = s.bestImprovement(b)
			}
			if m.row >= 0 && m.score > best {
				bidder, best = b, m.score
			}
		}
		if bidder < 0 {
			return
		}
		s.switchTo(bidder, s.next[bidder].row)
		s.next[bidder].known = false
	}
}

// bestImprovement returns the bidder's best change to a row of more worth that fits.
func (s *solver) bestImprovement(b int) move {
	m := move{row: -1, score: math.Inf(-1), known: true}
	worth, gain := 0.0, 0.0
	if row := s.choice[b]; row >= 0 {
		worth, gain = s.problem.worth[row], s.gain(row)
	}
	if s.near != nil && s.choice[b] == s.nearTo[b] {
		for _, r := range s.near[b] {
			if s.fits(b, r) {
				return move{row: r, score: s.gain(r) - gain, known: true}
			}
		}
		return m
	}
	for r := s.start[b]; r < s.start[b+1]; r++ {
		if s.problem.worth[r] <= worth+1e-12 {
			break // they are sorted by worth
		}
		if score := s.gain(r) - gain; score > m.score && s.fits(b, r) {
			m.row, m.score = r, score
		}
	}
	return m
}

// findNearest lists, if there are many rows, each bidder's better rows that cost the least relative to the best choice:
// in an auction without one bidder the others change to few other rows.
func (s *solver) findNearest() {
	const many, enough = 4096, 8
	if len(s.problem.worth) < many {
		return
	}
	s.nearTo = append([]int(nil), s.best...)
	s.near = make([][]int, s.bidders())
	gains := make([]float64, len(s.problem.worth))
	for r := range gains {
		gains[r] = s.gain(r)
	}
	for b := range s.near {
		var rows []int
		for r := s.start[b]; r < s.start[b+1] && (s.best[b] < 0 || s.problem.worth[r] > s.problem.worth[s.best[b]]+1e-12); r++ {
			rows = append(rows, r)
		}
		slices.SortStableFunc(rows, func(x, y int) int { return cmp.Compare(gains[y], gains[x]) })
		s.near[b] = rows[:min(len(rows), enough)]
	}
}

// fits reports whether a bidder could change to a row.
func (s *solver) fits(b, row int) bool {
	old := s.choice[b]
	for _, u := range s.usesOf(row) {
		left := s.roomLeft[u.constraint]
		if left >= u.n {
			continue
		}
		if old < 0 || left+s.usedOf(old, int(u.constraint)) < u.n {
			return false
		}
	}
	return true
}

// shake removes each bidder in turn from the best choice, lets the others improve and puts it back if it fits, until
// that no longer helps.
func (s *solver) shake() {
	if s.bidders()*len(s.problem.worth) > shakes {
		return
	}
	for again := true; again; {
		again = false
		for b := range s.best {
			if s.best[b] < 0 {
				continue
			}
			copy(s.choice, s.best)
			s.recount()
			s.switchTo(b, -1)
			s.isOut[b] = true
			s.improve()
			s.isOut[b] = false
			s.improve()
			before := s.worth
			s.recordBest()
			again = again || s.worth > before+1e-9
		}
		if s.bound-s.worth <= enough*s.worth {
			return
		}
	}
}

// shakes bounds the size of the problems that are shaken.
const shakes = 1 << 19
