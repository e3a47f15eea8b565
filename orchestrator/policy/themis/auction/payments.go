package auction

import "math"

// payments returns the part of its row that each bidder keeps (lines 7 and 8 of pseudocode 1): the product of the
// others' 1/rho, over its best value without the bidder. The allocation without a bidder starts from the best choice,
// so the others are never worse off and c is at most 1.
func (s *solver) payments() []float64 {
	keeps := make([]float64, len(s.best))
	best, worth := append([]int(nil), s.best...), s.worth
	s.findNearest()
	for b, row := range best {
		keeps[b] = 1
		if row < 0 {
			continue
		}
		copy(s.choice, best)
		s.recount()
		s.switchTo(b, -1)
		s.excluded = b
		others := s.value()
		s.improve()
		s.worth = s.value()
		copy(s.best, s.choice)
		if s.exact && s.bidders() <= exactBidders {
			s.search(proofEffort)
		}
		keeps[b] = math.Exp(min(0, others-s.worth))
		s.excluded = -1
	}
	copy(s.best, best)
	s.worth = worth
	return keeps
}

// exactBidders is the number of bidders up to which the best choice, also for payments, is searched for however small
// the gap.
const exactBidders = 16
