package curve

import "math"

// A family names the parametric shapes phi(u) of y = a + b phi(u), where u is the step over the newest step seen. All
// except the constant fall from early to late steps and flatten out, or keep falling slowly.
type family uint8

const (
	// constant: the curve does not change.
	constant family = iota
	// power: (u + s)^-p, the power law of Hestness et al. (2017) with an offset.
	power
	// exponential: exp(-k u).
	exponential
	// janoschek: exp(-(k u)^d), Weibull's growth; the exponential is a special case.
	janoschek
	// logPower: 1 / (1 + (k u)^d), which is also Morgan, Mercer and Flodin's growth.
	logPower
	// logarithm: -log(u + s), which is unbounded.
	logarithm
	// straight: -u, as for a learning rate that keeps falling.
	straight
)

// A shape is a member of a family: a point of the grid over its non-linear parameters.
type shape struct {
	family family
	p, q   float64
	// prior is the log of its prior weight, which the members of a family share equally.
	prior float64
}

func (s shape) at(u float64) float64 {
	switch s.family {
	case power:
		return math.Pow(u+s.q, -s.p)
	case exponential:
		return math.Exp(-s.p * u)
	case janoschek:
		return math.Exp(-math.Pow(s.p*u, s.q))
	case logPower:
		return 1 / (1 + math.Pow(s.p*u, s.q))
	case logarithm:
		return -math.Log(u + s.q)
	case straight:
		return -u
	default:
		return 0
	}
}

// shapes returns the grid over the non-linear parameters. Scales are relative to the newest step, so one grid serves
// curves of any length.
func shapes() []shape {
	var all []shape
	add := func(f family, ps, qs []float64) {
		weight := -math.Log(float64(len(ps) * len(qs)))
		for _, p := range ps {
			for _, q := range qs {
				all = append(all, shape{f, p, q, weight})
			}
		}
	}
	add(constant, []float64{0}, []float64{0})
	add(power, []float64{0.25, 0.5, 1, 2}, []float64{0.02, 0.1, 0.5})
	add(exponential, []float64{0.5, 1, 2, 4, 8, 16}, []float64{1})
	add(janoschek, []float64{1, 3, 9}, []float64{0.5, 2})
	add(logPower, []float64{1, 3, 10, 30}, []float64{1, 2})
	add(logarithm, []float64{1}, []float64{0.02, 0.2})
	add(straight, []float64{1}, []float64{1})
	return all
}
