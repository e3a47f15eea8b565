package auction

import (
	"math"
	"slices"
)

const (
	// exactBidders is the number of bidders up to which the best choice is searched for however small the gap.
	exactBidders = 16
	// paymentSteps is the most steps of the subgradient method for one payment, and paymentRows the number of rows that
	// these steps look at for all payments.
	paymentSteps = 40
	paymentRows  = 4 << 20
	// paymentEffort is the number of nodes of the search for one payment, and paymentsEffort the number for all payments.
	paymentEffort  = 50_000
	paymentsEffort = 500_000
)

// payments returns the part of its row that each bidder keeps (lines 7 and 8 of pseudocode 1): the product of the
// others' 1/rho, over its best value without the bidder. The allocation without a bidder starts from the best choice,
// so the others are never worse off and c is at most 1. least is the part that the bidder would keep if the others
// could have as much as the bound allows.
func (s *solver) payments() (keeps, least []float64) {
	keeps, least = make([]float64, len(s.best)), make([]float64, len(s.best))
	best, worth, price, bound := slices.Clone(s.best), s.worth, slices.Clone(s.price), s.bound
	s.findNearest()
	each := s.paymentWork()
	for b, row := range best {
		keeps[b], least[b] = 1, 1
		if row < 0 {
			continue
		}
		copy(s.choice, best)
		copy(s.price, price)
		s.recount()
		s.switchTo(b, -1)
		_, gain := s.favourite(b)
		s.bound = bound - gain
		s.isOut[b] = true
		others := s.value()
		s.solveWithout(each)
		keeps[b] = math.Exp(min(0, others-s.worth))
		least[b] = math.Exp(min(0, others-max(s.worth, s.bound)))
		s.isOut[b] = false
	}
	copy(s.best, best)
	copy(s.price, price)
	s.worth, s.bound = worth, bound
	return keeps, least
}

// work bounds the work for one payment.
type work struct {
	steps, effort int
	shakes        bool
}

// paymentWork divides the work for all payments by the number of winners. In large auctions only local search remains.
func (s *solver) paymentWork() work {
	winners := 0
	for _, row := range s.best {
		if row >= 0 {
			winners++
		}
	}
	winners = max(1, winners)
	rows := max(1, len(s.problem.worth))
	return work{
		steps:  min(paymentSteps, paymentRows/winners/rows),
		effort: min(paymentEffort, paymentsEffort/winners),
		shakes: winners*s.bidders()*rows <= shakes,
	}
}

// solveWithout finds the best choice of the bidders that are not left out, from the current choice and bound on. The
// prices of the auction with all bidders are nearly right without one of them.
func (s *solver) solveWithout(each work) {
	s.improve()
	s.worth = s.value()
	copy(s.best, s.choice)
	if each.steps == 0 {
		return
	}
	s.lowerBound(each.steps)
	if each.shakes && s.bound-s.worth > enough*s.worth {
		s.shake()
	}
	if s.bound-s.worth <= 1e-9 || s.search(each.effort) {
		s.bound = s.worth
	}
}
