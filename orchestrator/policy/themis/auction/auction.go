// Package auction is Themis's partial allocation auction (NSDI 2020, pseudocode 1; Cole, Gkatzelis and Goel, "Mechanism
// design for fair division", EC 2013). From tables of bids it computes a row for every bidder such that the product of
// 1/rho is maximal, and the part of the row that each bidder keeps, chosen so that truthful bids are optimal.
//
// Winner determination chooses at most one row per bidder under linear constraints. There are few constraints because
// they count pieces, not nodes: nodes with free_m devices of a type have room for sum_m floor(free_m / k) pieces of k
// devices, and a piece of K > k devices uses floor(K / k) of them. If every size divides the next, as powers of two do,
// any choice within these counts fits the nodes; otherwise it is checked against them. Rows that name a node or a rack
// are also counted there.
//
// Prices on the constraints (the Lagrangian dual, by subgradients) give an upper bound for any choice. The rows with
// the highest gain at these prices, repaired and improved, form a choice, and a search over the rows that the bound
// does not exclude improves it or proves it optimal. The gap between the choice and the bound is reported.
package auction

import (
	"math"

	"github.com/outbid-dev/outbid/orchestrator/bidder"
)

// Bidder is one sweep's bid.
type Bidder struct {
	// Nothing is its rho with no row.
	Nothing float64
	Rows    []bidder.Row
	// Group is the bidder's group, an index into the limits of RunWithin.
	Group int
}

// Result is an auction's outcome.
type Result struct {
	// Rows holds each bidder's row in the proportionally fair allocation, or -1 for none.
	Rows []int
	// Keeps is c, the part of its row that each bidder keeps, in (0, 1].
	Keeps []float64
	// LeastKeeps is a lower bound of Keeps: the part that the bidder would keep if the hidden payment were computed from
	// the bound of the others' best allocation. It equals Keeps where that allocation is known to be the best.
	LeastKeeps []float64
	// Log is the sum of log(1/rho) over the bidders, Bound an upper bound of it, and Nothing its value if no bidder
	// gets anything.
	Log, Bound, Nothing float64
	// Exact means that the search was exhaustive: no other choice is better.
	Exact bool
}

// Gap returns how much better the best choice could be at most, relative to the gain over giving no bidder anything.
func (r *Result) Gap() float64 {
	if gain := r.Log - r.Nothing; gain > 0 && !r.Exact {
		return max(0, r.Bound-r.Log) / gain
	}
	return 0
}

// Run runs the auction.
func Run(lots []bidder.Lot, bidders []Bidder) Result { return RunWithin(lots, bidders, nil) }

// RunWithin runs the auction with groups of bidders that together may not have more devices than their limits. Nil
// limits mean that bidders have no groups. A limit is one more linear constraint, so the properties of the auction hold
// within it.
func RunWithin(lots []bidder.Lot, bidders []Bidder, limits []int) Result {
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
	r.Keeps, r.LeastKeeps = s.payments()
	return r
}

// Sound reports whether a number is a valid rho.
func Sound(rho float64) bool { return rho > 0 && !math.IsInf(rho, 1) }
