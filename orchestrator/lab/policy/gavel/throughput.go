package gavel

import (
	"fmt"
	"math"
)

// MaxThroughput maximises the sum over jobs of rate_i(X), each type's part divided by its cost (section 4.2; nil costs
// are 1), while every job with a floor gets at least that rate, in steps/s (nil for none): for a deadline, steps left
// over seconds left. It returns ErrInfeasible if the floors cannot be met together; Gavel then drops them all.
func (j Jobs) MaxThroughput(cost, floor []float64) (Allocation, error) {
	if err := j.Check(); err != nil {
		return Allocation{}, err
	}
	if cost != nil && len(cost) != len(j.Workers) || floor != nil && len(floor) != len(j.Throughput) {
		return Allocation{}, fmt.Errorf("%d costs and %d floors for %d types and %d jobs", len(cost), len(floor), len(j.Workers), len(j.Throughput))
	}
	if err := j.meets(floor); err != nil {
		return Allocation{}, err
	}
	p := j.program()
	top := 0.0
	p.gain = make([]float64, len(p.rate))
	for k, rate := range p.rate {
		p.gain[k] = rate
		if cost != nil {
			if !(cost[k%p.r] > 0) {
				return Allocation{}, fmt.Errorf("type %d costs %g: want more than 0", k%p.r, cost[k%p.r])
			}
			p.gain[k] /= cost[k%p.r]
		}
		top = max(top, p.gain[k])
	}
	if top == 0 {
		x := make([]float64, len(p.rate))
		return Allocation{X: j.shape(x)}, nil
	}
	for i := range p.need {
		p.need[i].none = floor == nil || floor[i] <= 0
		if !p.need[i].none {
			p.need[i].base = floor[i]
		}
	}
	p = p.merge()
	value := func(s *point) (attained, bound, lack float64) {
		bound = p.dual(s)
		for k, g := range p.gain {
			attained += float64(p.count[k/p.r] * g * s.x[k])
		}
		for i, d := range p.need {
			if !d.none {
				bound -= float64(p.count[i] * s.zover[i] * d.base)
				lack = max(lack, 1-p.rateOf(i, s.x)/d.base)
			}
		}
		return attained, bound, lack
	}
	best, took := p.solveHomogeneous(0, func(s *point) float64 {
		attained, bound, lack := value(s)
		return math.Abs(bound-attained)/attained + lack
	})
	attained, bound, _ := value(best)
	return Allocation{X: j.shape(p.each(best.x)), Objective: attained, Bound: bound, Steps: took}, nil
}

// meets returns an error unless all rates can be raised to the floors.
func (j Jobs) meets(floor []float64) error {
	if floor == nil {
		return nil
	}
	some := false
	for i, f := range floor {
		if f > 0 && !j.runs(i) {
			return fmt.Errorf("job %d runs on no type of worker: %w", i, ErrInfeasible)
		}
		some = some || f > 0
	}
	if some {
		if a := j.maxLeastRate(floor, 0); a.Objective < 1+Tolerance {
			return fmt.Errorf("only %.3g of the floors can be met: %w", a.Objective, ErrInfeasible)
		}
	}
	return nil
}
