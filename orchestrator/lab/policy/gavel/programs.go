package gavel

import (
	"fmt"
	"math"
)

// Tolerance is the relative gap below which a program counts as solved; ECOS, which Gavel calls, uses the same.
const Tolerance = 1e-8

// Acceptable is the relative gap that every program reaches; finish-time fairness of types that are alike reaches three
// times it. If throughputs and steps span many magnitudes, rounding may keep it from Tolerance.
const Acceptable = 1e-6

// largeProblem is the number of distinct jobs from which maxLeastRate accepts Acceptable, because the last digits are
// expensive.
const largeProblem = 1000

// MaxMin is least attained service with weights (section 4.1): maximise over X
//
//	min_i Scale[i]/Weight[i] * rate_i(X) / rate_i(X^equal)
//
// with rate_i(X) = sum_j Throughput[i][j] X[i][j]. Jobs that run on no type are left out. For the variant that does not
// know the types call it on Unaware.
func (j Jobs) MaxMin() (Allocation, error) {
	if err := j.Check(); err != nil {
		return Allocation{}, err
	}
	return j.maxLeastRate(j.levels(), 0), nil
}

// levels returns the rate of each job at a max-min objective of 1, or 0 for a job that runs on no type.
func (j Jobs) levels() []float64 {
	equal := j.Proportional()
	level := make([]float64, len(j.Throughput))
	for i := range level {
		level[i] = j.Rate(i, equal) * j.weight(i) / j.Scale[i]
	}
	return level
}

// maxLeastRate maximises t such that every job i has rate_i(X) >= t*level[i]. The objective is t; the bound comes from
// the prices y of types and z of needs: t * sum z*level = sum z*rate(X) <= sum_j Workers[j] y_j + sum_i max(0, max_j
// z_i T_ij - Scale_i y_j).
func (j Jobs) maxLeastRate(level []float64, enough float64) Allocation {
	p := j.program()
	p.goal = 1
	limit := math.Inf(1)
	for i := range p.need {
		top := p.top(i)
		if level[i] == 0 || top == 0 {
			p.need[i].none = true
			continue
		}
		for k := i * p.r; k < (i+1)*p.r; k++ {
			p.rate[k] /= level[i]
		}
		p.need[i].slope = 1
		limit = min(limit, top/level[i])
	}
	if math.IsInf(limit, 1) {
		return Allocation{X: j.shape(make([]float64, p.n*p.r))}
	}
	value := func(s *point) (attained, bound float64) {
		attained = limit
		sum := 0.0
		for i := range p.need {
			if !p.need[i].none {
				attained = min(attained, p.rateOf(i, s.x))
				sum += float64(p.count[i] * s.zover[i])
			}
		}
		rough := min(p.dual(s)/sum, limit)
		if rough > 1.01*attained || rough-attained < 0.1*Acceptable*attained {
			return attained, rough
		}
		return attained, p.beyond(s.price, attained, limit)
	}
	p = p.merge()
	if p.n >= largeProblem {
		enough = max(enough, 0.9*Acceptable)
	}
	best, steps := p.solveHomogeneous(enough, func(s *point) float64 {
		attained, bound := value(s)
		return (bound - attained) / bound
	})
	attained, bound := value(best)
	return Allocation{X: j.shape(p.each(best.x)), Objective: attained, Bound: bound, Steps: steps}
}

// program returns a program with the constraints of the jobs, needs for all and no goal. Types without workers have no
// throughput.
func (j Jobs) program() *program {
	n, r := len(j.Throughput), len(j.Workers)
	p := &program{
		n: n, r: r, rate: make([]float64, n*r), need: make([]need, n), scale: j.Scale, mass: j.Scale,
		count: make([]float64, n), workers: make([]float64, r),
	}
	for i := range p.count {
		p.count[i] = 1
	}
	for t, workers := range j.Workers {
		// A type without workers still needs an interior of its constraint; nothing runs on it.
		p.workers[t] = workers
		if workers == 0 {
			p.workers[t] = 1
		}
	}
	for i, row := range j.Throughput {
		for t, x := range row {
			if j.Workers[t] > 0 {
				p.rate[i*r+t] = x
			}
		}
	}
	return p
}

// normalise scales each job's rates and need so that the fastest rate is 1.
func (p *program) normalise() {
	for i := range p.need {
		top := p.top(i)
		if top == 0 {
			continue
		}
		for k := i * p.r; k < (i+1)*p.r; k++ {
			p.rate[k] /= top
		}
		d := &p.need[i]
		d.slope /= top
		d.base /= top
		d.steps /= top
	}
}

func (p *program) top(i int) float64 {
	top := 0.0
	for _, x := range p.rate[i*p.r : (i+1)*p.r] {
		top = max(top, x)
	}
	return top
}

func (p *program) rateOf(i int, x []float64) float64 {
	rate := 0.0
	for k := i * p.r; k < (i+1)*p.r; k++ {
		rate += float64(p.rate[k] * x[k])
	}
	return rate
}

// dual bounds sum gain*X + sum zover*rate(X) over all allocations, by weak duality from the prices alone.
func (p *program) dual(s *point) float64 {
	bound := 0.0
	for t, y := range s.price {
		bound += float64(p.workers[t] * y)
	}
	for i := range p.n {
		best := 0.0
		for t := range p.r {
			k := i*p.r + t
			worth := float64(s.zover[i]*p.rate[k]) - float64(p.scale[i]*s.price[t])
			if p.gain != nil {
				worth += p.gain[k]
			}
			best = max(best, worth)
		}
		bound += float64(p.count[i] * best)
	}
	return bound
}

// shape splits a flat allocation into rows, with zeros for types without workers.
func (j Jobs) shape(flat []float64) [][]float64 {
	r := len(j.Workers)
	x := make([][]float64, len(j.Throughput))
	for i := range x {
		x[i] = flat[i*r : (i+1)*r : (i+1)*r]
		for t, workers := range j.Workers {
			if workers == 0 {
				x[i][t] = 0
			}
		}
	}
	return x
}

// Makespan minimises the time until the last job is done (section 4.2): max_i steps[i] / rate_i(X), in seconds. steps
// are the remaining ones; the objective is the makespan, and the bound is below it. It solves the max-min program of
// 1/makespan.
func (j Jobs) Makespan(steps []float64) (Allocation, error) {
	if err := j.checkSteps(steps); err != nil {
		return Allocation{}, err
	}
	// In units of the time with equal shares the values are near 1, which saves steps.
	equal, unit := j.Isolated(), 0.0
	for i, s := range steps {
		if s > 0 && !j.runs(i) {
			return Allocation{}, fmt.Errorf("job %d runs on no type of worker: %w", i, ErrInfeasible)
		}
		if s > 0 {
			unit = max(unit, s/j.Rate(i, equal))
		}
	}
	level := make([]float64, len(steps))
	for i, s := range steps {
		if s > 0 {
			level[i] = s / unit
		}
	}
	a := j.maxLeastRate(level, 0.9*Acceptable)
	if a.Objective > 0 {
		a.Objective, a.Bound = unit/a.Objective, unit/a.Bound
	}
	return a, nil
}

// MakespanAsPublished returns the result of Gavel's code: bisection between 100 and 1,000,000 s until the ends are
// within 5 %, and then the centre of the allocations that end in that time. The objective is that time, up to 5 % above
// the optimum.
func (j Jobs) MakespanAsPublished(steps []float64) (Allocation, error) {
	exact, err := j.Makespan(steps)
	if err != nil || exact.Objective == 0 {
		return exact, err
	}
	low, high, limit, found := 100.0, 1e6, 1e6, 0.0
	for found == 0 {
		for 1.05*low < high {
			middle := (low + high) / 2
			if middle >= exact.Objective {
				found, high = middle, middle
			} else {
				low = middle
			}
		}
		low, high, limit = limit, limit*10, limit*10
	}
	p := j.program()
	for i := range p.need {
		p.need[i] = need{base: steps[i] / found, none: steps[i] == 0}
	}
	p = p.merge()
	best, took := p.solveHomogeneous(0, func(s *point) float64 {
		lack := 0.0
		for i, d := range p.need {
			if !d.none {
				lack = max(lack, 1-p.rateOf(i, s.x)/d.base)
			}
		}
		return lack
	})
	a := Allocation{X: j.shape(p.each(best.x)), Bound: exact.Bound, Steps: exact.Steps + took}
	for i, s := range steps {
		if s > 0 {
			a.Objective = max(a.Objective, s/j.Rate(i, a.X))
		}
	}
	if !(a.Objective <= found*1.001) {
		return exact, nil
	}
	return a, nil
}

func (j Jobs) runs(i int) bool {
	for t, x := range j.Throughput[i] {
		if x > 0 && j.Workers[t] > 0 {
			return true
		}
	}
	return false
}

func (j Jobs) checkSteps(steps []float64) error {
	if err := j.Check(); err != nil {
		return err
	}
	if len(steps) != len(j.Throughput) {
		return fmt.Errorf("%d jobs have %d numbers of steps", len(j.Throughput), len(steps))
	}
	for i, s := range steps {
		if !(s >= 0) || math.IsInf(s, 0) {
			return fmt.Errorf("job %d has %g steps left: want 0 or more", i, s)
		}
	}
	return nil
}
