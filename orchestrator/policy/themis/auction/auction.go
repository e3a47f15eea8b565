// Package auction is Themis's partial allocation auction (NSDI 2020, pseudocode 1; Cole, Gkatzelis and Goel, "Mechanism
// design for fair division", EC 2013): from tables of bids, a row for every bidder that maximises the product of 1/rho,
// and what part of it each bidder keeps, so that telling the truth pays best.
//
// Winner determination is a choice of at most one row per bidder under linear constraints. They are few, because what is
// counted is not machines but pieces: on machines with free_m devices of a type there is room for sum_m floor(free_m / k)
// pieces of k devices, and a piece of K > k devices takes floor(K / k) of them. Where every size divides the next, as
// powers of two do, any choice that keeps to these counts fits the machines; otherwise it is checked against them. A row
// that names a machine or a rack is counted there too.
//
// Prices on the constraints (the Lagrangian dual, by subgradients) bound what any choice can be worth; rows that the
// prices favour, repaired and improved, make a choice; and a search over the rows that the bound does not rule out
// makes it better, or proves it to be the best. The gap between the choice and the bound is reported.
package auction

import (
	"math"

	"github.com/outbid-dev/outbid/orchestrator/agent"
)

// Bidder is one app's bid.
type Bidder struct {
	// Nothing is its rho with no row.
	Nothing float64
	Rows    []agent.Row
	// Group of bidders that it is of, by index in the limits of RunWithin.
	Group int
}

// Result is an auction's outcome.
type Result struct {
	// Rows is each bidder's row in the proportionally fair allocation; -1 for none.
	Rows []int
	// Keeps is c: the part of that which the bidder keeps, in (0, 1].
	Keeps []float64
	// Log is the sum of log(1/rho) over the bidders, Bound the most that it could be, and Nothing what it is if nobody
	// gets anything.
	Log, Bound, Nothing float64
	// Exact says that the search was exhaustive: no other choice is better.
	Exact bool
}

// Gap is how much better the best choice could at most be, as a part of what was gained over giving nobody anything.
func (r *Result) Gap() float64 {
	if gain := r.Log - r.Nothing; gain > 0 && !r.Exact {
		return max(0, r.Bound-r.Log) / gain
	}
	return 0
}

// Run holds the auction.
func Run(lots []agent.Lot, bidders []Bidder) Result { return RunWithin(lots, bidders, nil) }

// RunWithin holds it with groups of bidders that may have no more devices together than their limits; without limits there are no
// groups. A limit is one more linear constraint, so what holds of the auction holds within it.
func RunWithin(lots []agent.Lot, bidders []Bidder, limits []int) Result {
	p := compile(lots, bidders, limits)
	s := newSolver(p)
	s.solve()
	r := Result{Rows: make([]int, len(bidders)), Exact: s.exact}
	for i := range bidders {
		r.Rows[i] = -1
		if row := s.best[i]; row >= 0 {
			r.Rows[i] = p.index[row]
		}
		r.Nothing -= math.Log(bidders[i].Nothing)
	}
	r.Log, r.Bound = r.Nothing+s.worth, r.Nothing+max(s.worth, s.bound)
	if s.exact {
		r.Bound = r.Log
	}
	r.Keeps = s.payments()
	return r
}

// Sound says whether a number can be a rho.
func Sound(rho float64) bool { return rho > 0 && !math.IsInf(rho, 1) }
