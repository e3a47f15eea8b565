package surrogate

import (
	"math"
	"slices"
)

// The weight of an earlier sweep's function in a new one's is normal: its mean and deviation before any trial, for a
// function that is scaled to variance 1 at the new sweep's points.
const guideWeight, guideSpread = 0.6, 0.35

// guideTrials is the number of trials that the scale of an earlier sweep's function counts for, in addition to the new one:
// at the points of the first few trials it may be nearly constant.
const guideTrials = 2

const (
	// recallEvaluations is the number of settings that the fit of an earlier sweep tries.
	recallEvaluations = 30
	// leastExplained is the least share of the variance of an earlier sweep's costs that its model must predict. Below
	// it the sweep has nothing to tell.
	leastExplained = 0.35
	// scalesShare is the share of earlier sweeps' length scales in the centre of the prior.
	scalesShare = 0.5
)

// A Past models an earlier sweep, which may resemble a new one.
type Past struct {
	model *Model
	// scales are the logarithms of the length scales that model learned.
	scales []float64
	// lacks says which parameters none of its trials had.
	lacks []bool
	// best are its points with the lowest means, within the new sweep's ranges.
	best []Point
}

// Recall models an earlier sweep's trials. Their points have the new sweep's coordinates and may lie outside of its
// ranges. It returns false if the model cannot predict these trials from one another.
func Recall(parameters []Parameter, seen []Seen) (*Past, bool) {
	m, settings, ok := Learn(parameters, seen, Settings{}, recallEvaluations)
	if !ok || m.explained() < leastExplained {
		return nil, false
	}
	p := &Past{model: m, scales: settings.Scales, lacks: make([]bool, len(parameters))}
	for g := range p.lacks {
		p.lacks[g] = !slices.ContainsFunc(seen, func(s Seen) bool { return !math.IsNaN(s.At[g]) })
	}
	points := make([]Point, 0, len(seen))
	for _, s := range seen {
		points = append(points, s.At)
	}
	for _, at := range m.good(points, new(look)) {
		at = slices.Clone(at)
		for g, u := range at {
			if p.lacks[g] {
				at[g] = absent
			} else if !math.IsNaN(u) {
				at[g] = min(max(u, 0), math.Nextafter(1, 0))
			}
		}
		p.best = append(p.best, at)
	}
	return p, true
}

// explained returns the share of the costs' variance that the model predicts, each cost from all others.
func (m *Model) explained() float64 {
	inverse, missed := m.posterior.inv.gram(), 0.0
	for i, a := range m.posterior.alpha { // Rasmussen and Williams 2006, equation 5.12
		e := a / inverse.row(i)[i]
		missed += float64(e * e)
	}
	return 1 - missed/float64(m.n) // the costs have variance 1
}

// mean is the expected cost in the earlier sweep, in its model's scale.
func (p *Past) mean(at Point, l *look) float64 {
	if slices.Contains(p.lacks, true) {
		l.at = append(l.at[:0], at...)
		for g, lacks := range p.lacks {
			if lacks {
				l.at[g] = math.NaN()
			}
		}
		at = l.at
	}
	return p.model.mean(at, l)
}

// Guess returns the point of earlier sweeps that costs least on average, or false if none may be tried.
func Guess(past []*Past, snap Snap) (Point, bool) {
	var best Point
	var l look
	least := math.Inf(1)
	for _, p := range past {
		for _, at := range p.best {
			at, ok := snap(at)
			if !ok {
				continue
			}
			sum := 0.0
			for _, q := range past {
				sum += q.mean(at, &l)
			}
			if sum < least {
				best, least = at, sum
			}
		}
	}
	return best, best != nil
}

// A guide is the function of an earlier sweep in the model of a new one: a weighted part of the new function.
type guide struct {
	past *Past
	// centre and scale are those of its values at the new sweep's points, and at are these values, scaled.
	centre, scale float64
	at            []float64
	// weight and variance are those of its weight before any trial.
	weight, variance float64
	look             look
}

func guidesOf(past []*Past, seen []Seen) (all []*guide) {
	n := float64(len(past))
	for _, p := range past {
		g := &guide{past: p, scale: 1, weight: guideWeight / n, variance: guideSpread * guideSpread / n}
		for _, s := range seen {
			v := p.mean(s.At, &g.look)
			g.at = append(g.at, v)
			g.centre += v / float64(len(seen))
		}
		square := float64(guideTrials)
		for _, v := range g.at {
			square += float64((v - g.centre) * (v - g.centre))
		}
		g.scale = math.Sqrt(square / float64(guideTrials+len(seen)))
		for i, v := range g.at {
			g.at[i] = (v - g.centre) / g.scale
		}
		all = append(all, g)
	}
	return all
}

// value returns the earlier sweep's function at a point, scaled.
func (g *guide) value(at Point) float64 { return (g.past.mean(at, &g.look) - g.centre) / g.scale }

// expected returns the expected cost before any trial in the model's scale. value returns a guide's value at the point.
func (m *Model) expected(at Point, value func(*guide) float64) float64 {
	sum := m.bowl(at)
	for _, g := range m.guides {
		sum += float64(g.weight * value(g))
	}
	return sum
}

// expectedAt is expected at a point seen.
func (m *Model) expectedAt(i int, seen []Seen) float64 {
	return m.expected(seen[i].At, func(g *guide) float64 { return g.at[i] })
}

// shared returns the part of the points' covariance that comes from the unknown weights of guides, or nil.
func (m *Model) shared() []float64 {
	if len(m.guides) == 0 {
		return nil
	}
	c := newLower(m.n)
	for _, g := range m.guides {
		for i := range m.n {
			row := c.row(i)
			for j := range row {
				row[j] += float64(g.variance * float64(g.at[i]*g.at[j]))
			}
		}
	}
	return c.a
}
