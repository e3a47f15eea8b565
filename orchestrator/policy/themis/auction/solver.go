package auction

import (
	"math"
	"slices"
)

const (
	// enough is the gap, relative to the gain, below which the solver stops searching for a better choice.
	enough = 0.001
	// steps is the number of steps of the subgradient method, and patience the number of steps without a better bound
	// before the step length is halved.
	steps    = 160
	patience = 8
	// effort bounds the nodes of the search for a better choice.
	effort = 20_000
)

// solver is the state of a solution, reused for the payments.
type solver struct {
	*problem
	// price of each constraint, and the bound that the prices prove.
	price []float64
	bound float64
	// best is the best choice so far: a row for each bidder, or -1. worth is its value.
	best  []int
	worth float64
	exact bool
	// roomLeft and choice describe the current choice. isOut marks the bidders that are left out.
	roomLeft []int32
	choice   []int
	isOut    []bool
	// next is the current best improvement of each bidder.
	next    []move
	reliefs []relief
	// near is the result of nearest for the choice nearTo.
	near   [][]int
	nearTo []int
}

// move is a bidder's change to another row, with its gain at the prices.
type move struct {
	row   int
	score float64
	known bool
}

func newSolver(p *problem) *solver {
	n := p.bidders()
	s := &solver{
		problem: p, price: make([]float64, len(p.room)), best: make([]int, n), roomLeft: make([]int32, len(p.room)),
		choice: make([]int, n), isOut: make([]bool, n), next: make([]move, n), bound: math.Inf(1),
	}
	for b := range s.best {
		s.best[b] = -1
	}
	return s
}

func (s *solver) solve() {
	s.clearChoice()
	s.improve()
	s.recordBest()
	s.lowerBound(steps)
	if s.bound-s.worth > enough*s.worth {
		s.shake()
	}
	switch gap := s.bound - s.worth; {
	case gap <= 1e-9:
		s.exact = true
	case s.bidders() <= exactBidders || gap > enough*s.worth:
		s.exact = s.search(effort)
	}
	if !s.exactCounts && !s.repack() {
		s.exact = false
	}
}

// gain returns a row's worth minus its cost at the prices.
func (s *solver) gain(row int) float64 {
	w := s.problem.worth[row]
	for _, u := range s.usesOf(row) {
		w -= s.price[u.constraint] * float64(u.n)
	}
	return w
}

// favourite returns the bidder's row with the highest gain, or -1 if none is above 0 or the bidder is left out.
func (s *solver) favourite(b int) (row int, gain float64) {
	row = -1
	if s.isOut[b] {
		return row, 0
	}
	for r := s.start[b]; r < s.start[b+1]; r++ {
		if g := s.gain(r); g > gain {
			row, gain = r, g
		}
	}
	return row, gain
}

// lowerBound minimises the bound over the prices by subgradients from the current prices on, with Polyak's step towards
// the best known choice. Prices are scaled by the room of their constraint.
func (s *solver) lowerBound(steps int) {
	n := len(s.room)
	price, over := slices.Clone(s.price), make([]float64, n)
	s.bound = math.Inf(1)
	bestPrice := slices.Clone(price)
	factor, idle := 1.0, 0
	for range steps {
		copy(s.price, price)
		bound := 0.0
		for c := range over {
			bound += price[c] * float64(s.room[c])
			over[c] = -float64(s.room[c])
		}
		for b := range s.bidders() {
			row, gain := s.favourite(b)
			s.choice[b] = row
			if row >= 0 {
				bound += gain
				for _, u := range s.usesOf(row) {
					over[u.constraint] += float64(u.n)
				}
			}
		}
		if bound < s.bound-1e-12 {
			if idle++; bound < s.bound*(1-1e-4) {
				idle = 0
			}
			s.bound = bound
			copy(bestPrice, price)
		} else if idle++; idle >= patience {
			factor, idle = factor/2, 0
			copy(price, bestPrice)
			s.tryFavourites()
		}
		if s.bound-s.worth <= enough*s.worth || factor < 1e-3 {
			break
		}
		s.stepPrices(price, over, factor*(bound-s.worth))
	}
	copy(s.price, bestPrice)
	for b := range s.bidders() {
		s.choice[b], _ = s.favourite(b)
	}
	s.tryFavourites()
}

// stepPrices moves the prices along the excess.
func (s *solver) stepPrices(price, over []float64, length float64) {
	norm := 0.0
	for c, o := range over {
		if o > 0 || price[c] > 0 {
			scaled := o / float64(s.room[c]+1)
			norm += scaled * scaled
		}
	}
	if norm == 0 {
		return
	}
	for c, o := range over {
		scale := float64(s.room[c] + 1)
		price[c] = max(0, price[c]+length/norm*o/(scale*scale))
	}
}

// tryFavourites makes the current choice, which may overdraw constraints, fit; then improves it and records it if it is
// the best.
func (s *solver) tryFavourites() {
	s.recount()
	s.repair()
	s.improve()
	s.recordBest()
}

func (s *solver) clearChoice() {
	for b := range s.choice {
		s.choice[b] = -1
	}
	copy(s.roomLeft, s.room)
}

// recount computes what the choice leaves of each constraint.
func (s *solver) recount() {
	copy(s.roomLeft, s.room)
	for _, row := range s.choice {
		if row >= 0 {
			s.addUse(row, -1)
		}
	}
}

func (s *solver) addUse(row int, sign int32) {
	for _, u := range s.usesOf(row) {
		s.roomLeft[u.constraint] += sign * u.n
	}
}

// switchTo changes the choice of a bidder.
func (s *solver) switchTo(b, row int) {
	if old := s.choice[b]; old >= 0 {
		s.addUse(old, 1)
	}
	if s.choice[b] = row; row >= 0 {
		s.addUse(row, -1)
	}
}

func (s *solver) value() float64 {
	v := 0.0
	for _, row := range s.choice {
		if row >= 0 {
			v += s.problem.worth[row]
		}
	}
	return v
}

// recordBest records the current choice if it is the best.
func (s *solver) recordBest() {
	if v := s.value(); v > s.worth {
		s.worth = v
		copy(s.best, s.choice)
	}
}
