package gavel

import "math"

// Reweigh returns the weights of the next level of water filling, given the saturated jobs; weight 0 keeps a job at its
// level. Gavel's hierarchical policies (section 4.3) use it to pass a saturated job's share to the rest of its entity.
type Reweigh func(saturated []bool) []float64

// WaterFill is lexicographic max-min fairness (section 4.3 and appendix): raise all normalised rates together, freeze
// the jobs that cannot rise further, and continue with the others. The prices identify these jobs: by strict
// complementarity, which interior points have, exactly the jobs whose need has a price cannot rise in any optimum.
// (Gavel solves an integer program for it.) With a nil reweigh the weights stay the same and the result is the
// lexicographic optimum. Objective and Bound are those of the first level.
func (j Jobs) WaterFill(reweigh Reweigh) (Allocation, error) {
	if err := j.Check(); err != nil {
		return Allocation{}, err
	}
	level := j.levels()
	saturated := make([]bool, len(level))
	filled := make([]float64, len(level))
	for i := range level {
		saturated[i] = level[i] == 0 || !j.runs(i)
	}
	var last Allocation
	for first := true; ; first = false {
		weighted := j
		if reweigh != nil {
			weighted.Weight = reweigh(saturated)
			level = weighted.levels()
		}
		for i := range level {
			if saturated[i] {
				level[i] = 0
			}
		}
		next, tight, ok := j.fill(filled, level)
		if !ok {
			return last, nil
		}
		last.X, last.Steps = next.X, last.Steps+next.Steps
		if first {
			last.Objective, last.Bound = next.Objective, next.Bound
		}
		progress := false
		for i := range level {
			filled[i] += float64(max(0, next.Objective) * level[i])
			progress = progress || tight[i] && !saturated[i]
			saturated[i] = saturated[i] || tight[i]
		}
		if !progress { // the prices are lost in rounding: keep what is filled
			return last, nil
		}
	}
}

// fill maximises t such that every job has the rate filled + t*level, and returns which jobs limit it. It returns false
// if no job is to be raised.
func (j Jobs) fill(filled, level []float64) (Allocation, []bool, bool) {
	p := j.program()
	p.goal = 1
	raised := false
	for i, l := range level {
		d := &p.need[i]
		d.none = l == 0 && filled[i] == 0
		unit := l
		if l == 0 {
			unit = filled[i]
		}
		if d.none {
			continue
		}
		for k := i * p.r; k < (i+1)*p.r; k++ {
			p.rate[k] /= unit
		}
		// Slightly below the level reached, so that rounding cannot close the interior.
		d.base = filled[i] * (1 - slack) / unit
		if l > 0 {
			d.slope = 1
			raised = true
		}
	}
	if !raised {
		return Allocation{}, nil, false
	}
	p = p.merge()
	value := func(s *point) (attained, bound, lack float64) {
		attained, limit := math.Inf(1), math.Inf(1)
		for i, d := range p.need {
			switch {
			case d.none:
			case d.slope > 0:
				attained = min(attained, p.rateOf(i, s.x)-d.base)
				limit = min(limit, p.top(i)-d.base)
			default:
				lack = max(lack, 1-p.rateOf(i, s.x)/d.base)
			}
		}
		return attained, p.beyond(s.price, attained, limit), lack
	}
	// The rise is measured against the whole level, which may be far more than this step adds.
	whole := 0.0
	for _, d := range p.need {
		if d.slope > 0 {
			whole = max(whole, d.base)
		}
	}
	best, took := p.solveHomogeneous(0, func(s *point) float64 {
		attained, bound, lack := value(s)
		return math.Abs(bound-attained)/(math.Abs(attained)+whole) + lack
	})
	attained, bound, _ := value(best)
	a := Allocation{X: j.shape(p.each(best.x)), Objective: attained, Bound: bound, Steps: took}
	return a, p.spread(p.tight(best)), true
}

// slack is how much a frozen level may fall when later levels are filled, relative to it.
const slack = 1e-7

// tight returns the raised jobs with a significant price and no slack, always including the one with the highest price.
// A job that is missed is found at the next level, which then adds nothing.
func (p *program) tight(s *point) []bool {
	held := make([]bool, p.n)
	total, count, dearest, most := 0.0, 0.0, -1, 0.0
	for i, d := range p.need {
		if d.none || d.slope == 0 {
			continue
		}
		worth := s.zover[i] * d.slope
		total += float64(p.count[i] * worth)
		count += p.count[i]
		if worth > most {
			dearest, most = i, worth
		}
	}
	for i, d := range p.need {
		if d.none || d.slope == 0 {
			continue
		}
		share, loose := s.zover[i]*d.slope/total*count, s.over[i]/(s.over[i]+d.base+math.Abs(d.slope*s.t))
		held[i] = i == dearest || share > 1e-3 && loose < 1e-5
	}
	return held
}
