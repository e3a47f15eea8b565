package gavel

import (
	"fmt"
	"math"
)

// FinishTime is finish-time fairness (section 4.2, after Themis): minimise over X
//
//	max_i rho_i,  rho_i = (elapsed[i] + steps[i]/rate_i(X)) / isolated[i]
//
// with elapsed seconds since job i arrived, remaining steps, and isolated seconds that it would need in all on 1/n of
// the cluster. For a given rho job i needs the rate steps/(rho*isolated - elapsed), which is convex in rho, so the
// interior-point method solves for rho and X at once instead of by bisection. Jobs without steps are left out.
//
// Often one job determines rho, and any X that serves it is optimal. If no job distinguishes types, X is ECOS's result
// (secondOrderCone); otherwise it is the centre of all optimal ones (solve).
func (j Jobs) FinishTime(steps, elapsed, isolated []float64) (Allocation, error) {
	if err := j.checkSteps(steps); err != nil {
		return Allocation{}, err
	}
	p := j.program()
	p.goal = -1
	x := make([]float64, p.n*p.r)
	p.interior(x)
	unit := 0.0
	for i, s := range steps {
		if s == 0 {
			p.need[i].none = true
			continue
		}
		if !(elapsed[i] >= 0) || !(isolated[i] > 0) || math.IsInf(isolated[i], 0) {
			return Allocation{}, fmt.Errorf("job %d waited %g s and would take %g s alone: want 0 or more, and more than 0",
				i, elapsed[i], isolated[i])
		}
		if !j.runs(i) {
			return Allocation{}, fmt.Errorf("job %d runs on no type of worker: %w", i, ErrInfeasible)
		}
		unit = max(unit, (elapsed[i]+s/p.rateOf(i, x))/isolated[i])
	}
	if unit == 0 {
		return Allocation{X: j.shape(x)}, nil
	}
	for i, s := range steps {
		if s > 0 {
			// In units of rho at the start; times relative to the isolated time.
			p.need[i] = need{steps: s / isolated[i], iso: unit, elapsed: elapsed[i] / isolated[i]}
		}
	}
	p = p.merge()
	limit := 0.0
	for i, d := range p.need {
		if !d.none {
			limit = max(limit, (d.elapsed+d.steps/p.top(i))/d.iso)
		}
	}
	value := func(s *point) (attained, bound float64) {
		for i, d := range p.need {
			if !d.none {
				attained = max(attained, (d.elapsed+d.steps/p.rateOf(i, s.x))/d.iso)
			}
		}
		return attained, p.beyond(s.price, attained, limit)
	}
	gap := func(s *point) float64 {
		attained, bound := value(s)
		return (attained - bound) / attained
	}
	best, took := (*point)(nil), 0
	if p.alike() && p.n < largeProblem {
		best, took = p.follow(gap)
	}
	if best == nil || !(gap(best) <= withCones) {
		more := 0
		p.normalise()
		p.from = 2
		best, more = p.solve(gap)
		took += more
	}
	attained, bound := value(best)
	return Allocation{X: j.shape(p.each(best.x)), Objective: attained * unit, Bound: bound * unit, Steps: took}, nil
}

// alike reports whether no job distinguishes types and all have work left.
func (p *program) alike() bool {
	for i := range p.n {
		if p.need[i].none {
			return false
		}
		for _, rate := range p.rate[i*p.r : (i+1)*p.r] {
			if rate > 0 && rate != p.top(i) {
				return false
			}
		}
	}
	return true
}

// Alone tracks the time that each job would have needed alone so far, as Gavel's code does: at every decision the steps
// done since the last one are charged at the isolated rate of the last one. The zero value is ready for use, and its
// fields are its snapshot.
type Alone struct {
	Jobs map[int]Past `json:"jobs,omitempty"`
}

// Past is one job's isolated past.
type Past struct {
	// Seconds it would have taken so far.
	Seconds float64 `json:"seconds"`
	// Rate, in steps/s, and Left, in steps, at the last decision.
	Rate float64 `json:"rate"`
	Left float64 `json:"left"`
}

// Isolated returns the whole isolated time of each job and records the decision. It drops jobs that are gone.
func (a *Alone) Isolated(id []int, j Jobs, steps []float64) []float64 {
	share := j.Isolated()
	past := make(map[int]Past, len(id))
	whole := make([]float64, len(id))
	for i, job := range id {
		p, known := a.Jobs[job]
		if known && p.Rate > 0 {
			p.Seconds += (p.Left - steps[i]) / p.Rate
		}
		p.Rate, p.Left = j.Rate(i, share), steps[i]
		whole[i] = p.Seconds + p.Left/p.Rate
		past[job] = p
	}
	a.Jobs = past
	return whole
}
