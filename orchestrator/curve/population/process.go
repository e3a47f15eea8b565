package population

import (
	"math"
	"math/rand/v2"
	"slices"
)

// A Scale is what a Process learned about a sweep's configurations. It is plain data, from which the next process
// starts.
type Scale struct {
	// Lengths are, for each parameter, the distance in parts of its range within which configurations end similarly.
	Lengths []float64
	// Share is the share of the variance of ends that configurations explain.
	Share float64
}

// lengths and shares return the allowed values of a scale. With the largest length, a parameter has no influence.
func lengths() []float64 { return []float64{0.08, 0.15, 0.3, 0.6, 1.2, 2.5, 10} }
func shares() []float64  { return []float64{0.02, 0.2, 0.4, 0.6, 0.8, 0.95} }

// NewScale returns the scale to start with: configurations explain little, and each parameter varies over its whole
// range.
func NewScale(parameters int) Scale {
	s := Scale{Lengths: make([]float64, parameters), Share: shares()[1]}
	for i := range s.Lengths {
		s.Lengths[i] = 1.2
	}
	return s
}

// prior returns the log prior of a scale: most parameters matter little.
func (s *Scale) prior() float64 {
	sum := 0.0
	for _, l := range s.Lengths {
		d := math.Log(l / 0.8)
		sum -= d * d / 4
	}
	return sum
}

// A Measured is a measurement of the end of a curve's configuration: a value with a variance.
type Measured struct {
	// X is the configuration in the unit cube, NaN for an absent parameter.
	X []float64
	// Value and Noise belong to the cost at the last look.
	Value, Noise float64
}

// A Process is a Gaussian process over configurations, for the cost at the last look.
type Process struct {
	mean, variance float64
	scale          Scale
	// choices marks the parameters without an order.
	choices []bool
	points  []Measured
	// low is the Cholesky factor of the covariance, alpha the weights of the kernels in the mean.
	low   [][]float64
	alpha []float64
	// evidence is the log likelihood up to a constant.
	evidence float64
}

// NewProcess conditions a process with a mean and a variance on measurements.
func NewProcess(mean, variance float64, s Scale, choices []bool, points []Measured) *Process {
	p := &Process{mean: mean, variance: variance, scale: s, choices: choices, points: points}
	n := len(points)
	p.low = make([][]float64, n)
	cells := make([]float64, n*(n+1)/2)
	for i := range n {
		p.low[i], cells = cells[:i+1], cells[i+1:]
		for j := range i {
			p.low[i][j] = p.kernel(points[i].X, points[j].X)
		}
		p.low[i][i] = variance + points[i].Noise + jitter
	}
	factorise(p.low)
	p.alpha = make([]float64, n)
	for i, m := range points {
		p.alpha[i] = m.Value - mean
	}
	forward(p.low, p.alpha)
	for i, a := range p.alpha {
		p.evidence -= a*a/2 + math.Log(p.low[i][i])
	}
	backward(p.low, p.alpha)
	return p
}

// jitter keeps a covariance positive definite.
const jitter = 1e-6

// Learn tries other scales, one after another, and keeps those that explain the points better.
func (p *Process) Learn(tries int, rng *rand.Rand) *Process {
	for range tries {
		s := Scale{Lengths: slices.Clone(p.scale.Lengths), Share: p.scale.Share}
		if at := rng.IntN(len(s.Lengths) + 1); at < len(s.Lengths) {
			s.Lengths[at] = lengths()[rng.IntN(len(lengths()))]
		} else {
			s.Share = shares()[rng.IntN(len(shares()))]
		}
		if other := NewProcess(p.mean, p.variance, s, p.choices, p.points); other.evidence+s.prior() > p.evidence+p.scale.prior() {
			p = other
		}
	}
	return p
}

// Scale returns the scale of the process.
func (p *Process) Scale() Scale { return p.scale }

// kernel returns the covariance of the ends of two configurations: a Matérn kernel with smoothness 5/2.
func (p *Process) kernel(a, b []float64) float64 {
	sum := 0.0
	for i, l := range p.scale.Lengths {
		d := a[i] - b[i]
		switch {
		case d == 0:
			continue
		case d != d: // one or both are absent
			if math.IsNaN(a[i]) && math.IsNaN(b[i]) {
				continue
			}
			d = 1
		case p.choices[i]:
			d = 1
		}
		d /= l
		sum += d * d
	}
	r := math.Sqrt(5 * sum)
	return p.scale.Share * p.variance * (1 + r + r*r/3) * math.Exp(-r)
}

// At returns the mean and variance of the end of a configuration.
func (p *Process) At(x []float64) (mean, variance float64) {
	k := make([]float64, len(p.points))
	mean = p.mean
	for i := range k {
		k[i] = p.kernel(p.points[i].X, x)
		mean += k[i] * p.alpha[i]
	}
	forward(p.low, k)
	variance = p.variance
	for _, v := range k {
		variance -= v * v
	}
	return mean, max(variance, jitter)
}

// factorise replaces the lower triangle of a positive definite matrix by its Cholesky factor.
func factorise(m [][]float64) {
	for i, row := range m {
		for j := range i + 1 {
			sum, other := row[j], m[j]
			for k := range j {
				sum -= row[k] * other[k]
			}
			if i == j {
				row[i] = math.Sqrt(max(sum, jitter))
			} else {
				row[j] = sum / other[j]
			}
		}
	}
}

// forward solves low * x = b in place.
func forward(low [][]float64, b []float64) {
	for i, row := range low {
		sum := b[i]
		for j, v := range row[:i] {
			sum -= v * b[j]
		}
		b[i] = sum / row[i]
	}
}

// backward solves the transpose of low * x = b in place.
func backward(low [][]float64, b []float64) {
	for i := len(low) - 1; i >= 0; i-- {
		b[i] /= low[i][i]
		for j, v := range low[i][:i] {
			b[j] -= v * b[i]
		}
	}
}
