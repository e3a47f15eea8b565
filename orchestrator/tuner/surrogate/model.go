// Package surrogate models how a metric depends on the configuration with a Gaussian process and proposes the next
// configuration.
//
// The process has a Matérn kernel with smoothness 5/2 and a length for each parameter (Rasmussen and Williams,
// "Gaussian Processes for Machine Learning", 2006, equation 4.17). The next configuration has the highest expected
// improvement (Jones, Schonlau and Welch, 1998), computed in logarithms (Ament et al., "Unexpected Improvements to
// Expected Improvement", NeurIPS 2023). The package is deterministic: randomness is an argument.
package surrogate

import (
	"math"
	"slices"
)

// A Point is a point of a search space's unit cube: a coordinate for each parameter, NaN for an absent one.
type Point = []float64

// A Parameter describes a coordinate.
type Parameter struct {
	// Choices is the number of unordered values, or 0 for a number.
	Choices int
}

// absent is the column of a number that is absent. choiceWeight is the column of a choice's value: two different
// choices are as far apart as two numbers at opposite ends.
const absent, choiceWeight = 0.5, math.Sqrt2 / 2

// A Model is fitted to trials.
type Model struct {
	parameters []Parameter
	columns    []int
	posterior  posterior
	// x are the points seen, column by column, divided by the lengths. lengths are 1 / length.
	x         []float64
	lengths   []float64
	n         int
	amplitude float64
	// best is the lowest mean at the points seen, in the model's scale.
	best float64
	// shift and scale convert costs to the model's scale.
	shift, scale float64
	guides       []*guide
}

// Seen is a trial: its point and its cost. Lower is better; NaN means that the trial failed.
type Seen struct {
	At   Point
	Cost float64
}

// columnsOf returns the parameter of each column.
func columnsOf(parameters []Parameter) (columns []int) {
	for g, p := range parameters {
		for range max(1, p.Choices) {
			columns = append(columns, g)
		}
	}
	return columns
}

// features returns a point as the kernel sees it: a choice has a column for each value.
func features(parameters []Parameter, at Point, into []float64) []float64 {
	into = into[:0]
	for g, p := range parameters {
		u := at[g]
		if p.Choices == 0 {
			if math.IsNaN(u) {
				u = absent
			}
			into = append(into, u)
			continue
		}
		first := len(into)
		for range p.Choices {
			into = append(into, 0)
		}
		if !math.IsNaN(u) {
			into[first+max(0, min(int(u*float64(p.Choices)), p.Choices-1))] = choiceWeight
		}
	}
	return into
}

// Settings are the result of a fit, from which the next fit starts.
type Settings struct {
	// Scales, Amplitude and Noise are logarithms. Empty Scales stand for the prior's centre.
	Scales           []float64
	Amplitude, Noise float64
}

func (s Settings) hyper(p prior) hyper {
	if len(s.Scales)+2 == len(p.centre) {
		return hyper{scales: slices.Clone(s.Scales), amplitude: s.Amplitude, noise: s.Noise}
	}
	return hyperOf(slices.Clone(p.centre))
}

// Learn fits a model in at most this many evaluations of the settings; 0 keeps the given settings. Earlier sweeps are a
// part of the function, as far as the costs agree with them. It returns false if no trial has a finite cost.
func Learn(parameters []Parameter, seen []Seen, from Settings, evaluations int, past ...*Past) (*Model, Settings, bool) {
	costs, shift, scale, ok := scaled(seen)
	if !ok {
		return nil, from, false
	}
	m := &Model{parameters: parameters, columns: columnsOf(parameters), shift: shift, scale: scale, n: len(seen)}
	m.guides = guidesOf(past, seen)
	x := make([][]float64, len(seen))
	for i, s := range seen {
		x[i] = features(parameters, s.At, nil)
		costs[i] -= m.expectedAt(i, seen)
	}
	p := pairs{distances(x, len(parameters), m.columns), m.shared()}
	prior := priorOf(len(parameters), past)
	h := from.hyper(prior)
	if evaluations > 0 {
		h = fit(p, costs, prior, h, evaluations)
	}
	if m.posterior, _, ok = condition(p, costs, h); !ok {
		return nil, from, false
	}
	m.amplitude = math.Exp(h.amplitude)
	for _, g := range m.columns {
		m.lengths = append(m.lengths, math.Exp(-h.scales[g]))
	}
	m.x = make([]float64, 0, m.n*len(m.columns))
	for c, length := range m.lengths {
		for i := range x {
			m.x = append(m.x, x[i][c]*length)
		}
	}
	m.best = math.Inf(1)
	for i := range costs { // the mean at a point seen is its cost without the noise
		m.best = min(m.best, costs[i]+m.expectedAt(i, seen)-float64(math.Exp(h.noise)*m.posterior.alpha[i]))
	}
	return m, Settings{Scales: h.scales, Amplitude: h.amplitude, Noise: h.noise}, true
}

// bowl returns the expected cost before any trial in the model's scale: a shallow bowl around the middle of all numbers.
// Without it, proposals would prefer corners, where the deviation is largest.
func (m *Model) bowl(at Point) float64 {
	sum := 0.0
	for g, p := range m.parameters {
		if u := at[g]; p.Choices == 0 && !math.IsNaN(u) {
			sum += float64((2*u-1)*(2*u-1)) - 1.0/3
		}
	}
	return sum / float64(len(m.parameters))
}

// clipAt limits how bad a cost can be, relative to the distance between the median and the best: it is not worth
// learning bad costs exactly.
const clipAt = 3

// scaled clips bad costs and scales all to mean 0 and variance 1. Failed trials count as the worst.
func scaled(seen []Seen) (costs []float64, shift, scale float64, ok bool) {
	var finite []float64
	for _, s := range seen {
		if !math.IsNaN(s.Cost) && !math.IsInf(s.Cost, 0) {
			finite = append(finite, s.Cost)
		}
	}
	if len(finite) == 0 {
		return nil, 0, 0, false
	}
	slices.Sort(finite)
	median := (finite[(len(finite)-1)/2] + finite[len(finite)/2]) / 2
	worst := min(median+float64(clipAt*(median-finite[0])), finite[len(finite)-1])
	if median == finite[0] { // at least half are as good as the best: clipping would remove all differences
		worst = finite[len(finite)-1]
	}
	costs = make([]float64, len(seen))
	for i, s := range seen {
		costs[i] = worst
		if !math.IsNaN(s.Cost) {
			costs[i] = max(min(s.Cost, worst), finite[0])
		}
		shift += costs[i]
	}
	shift /= float64(len(costs))
	for i := range costs {
		costs[i] -= shift
		scale += float64(costs[i] * costs[i])
	}
	if scale = math.Sqrt(scale / float64(len(costs))); !(scale > 0) || math.IsInf(scale, 0) {
		scale = 1 // all costs are equal
	}
	for i := range costs {
		costs[i] /= scale
	}
	return costs, shift, scale, true
}

// A look is a buffer for computing at a point.
type look struct {
	features, k, at []float64
	// variance is that before any trial.
	variance float64
}

// mean returns the expected cost at a point in the model's scale and leaves the covariances in l.
func (m *Model) mean(at Point, l *look) float64 {
	l.features = features(m.parameters, at, l.features)
	if len(l.k) != m.n {
		l.k = make([]float64, m.n)
	}
	clear(l.k)
	for c, f := range l.features {
		f *= m.lengths[c]
		for i, x := range m.x[c*m.n : (c+1)*m.n] {
			d := x - f
			l.k[i] += float64(d * d)
		}
	}
	for i, r2 := range l.k {
		k, _ := matern(r2)
		l.k[i] = float64(m.amplitude * k)
	}
	l.variance = m.amplitude
	expected := m.expected(at, func(g *guide) float64 {
		v := g.value(at)
		l.variance += float64(g.variance * float64(v*v))
		for i, w := range g.at {
			l.k[i] += float64(g.variance * float64(v*w))
		}
		return v
	})
	return dot(l.k, m.posterior.alpha) + expected
}

// spread returns the standard deviation at the point of the last call of mean with l.
func (m *Model) spread(l *look) float64 {
	v := l.variance
	for i := range l.k {
		x := dot(m.posterior.inv.row(i), l.k[:i+1])
		v -= float64(x * x)
	}
	return math.Sqrt(max(v, 1e-12))
}

// spreadBound returns an upper bound of spread in much less time: the standard deviation if only the trial with the
// largest covariance were known.
func (m *Model) spreadBound(l *look) float64 {
	at := 0
	for i := range l.k {
		if l.k[i] > l.k[at] {
			at = i
		}
	}
	own, k := m.amplitude, l.k[at]
	for _, g := range m.guides {
		own += float64(g.variance * float64(g.at[at]*g.at[at]))
	}
	return math.Sqrt(max(l.variance-float64(k*k)/(own+math.Exp(m.posterior.h.noise)), 1e-12))
}

// Predict returns the expected cost of a configuration, without noise, and its standard deviation.
func (m *Model) Predict(at Point) (mean, deviation float64) {
	var l look
	mean = m.mean(at, &l)
	return float64(mean*m.scale) + m.shift, m.spread(&l) * m.scale
}

// logImprovement returns the logarithm of the expected improvement on the best (Ament et al. 2023, equation 9).
func logImprovement(mean, spread, best float64) float64 {
	z := (best - mean) / spread
	return math.Log(spread) + logH(z)
}

// logH returns log(phi(z) + z Phi(z)), numerically stable for any z.
func logH(z float64) float64 {
	const c = 0.918938533204672741780 // log(2 pi) / 2
	switch {
	case z > -1:
		return math.Log(math.Exp(-z*z/2-c) + z*0.5*math.Erfc(-z/math.Sqrt2))
	case z > -25:
		// phi(z) (1 + z Phi(z) / phi(z)).
		ratio := 0.5 * math.Erfc(-z/math.Sqrt2) / math.Exp(-z*z/2-c)
		return -z*z/2 - c + math.Log1p(z*ratio)
	default: // 1 + z Phi(z) / phi(z) is about 1 / z^2 - 3 / z^4
		return -z*z/2 - c - 2*math.Log(-z) + math.Log1p(-3/(z*z))
	}
}
