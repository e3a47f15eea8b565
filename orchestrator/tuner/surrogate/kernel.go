package surrogate

import (
	"math"
)

// sqrt5 is of the Matérn kernel.
const sqrt5 = 2.23606797749978969

// pairs are the squared distances of all pairs of points, a parameter at a time: pairs[g] holds n * (n - 1) / 2 of them, row by row.
type pairs [][]float64

// distances computes them. columns says which columns of a point belong to which of the parameters.
func distances(x [][]float64, groups int, columns []int) pairs {
	p := make(pairs, groups)
	for g := range p {
		p[g] = make([]float64, len(x)*(len(x)-1)/2)
	}
	k := 0
	for i := range x {
		for j := range i {
			for c, g := range columns {
				d := x[i][c] - x[j][c]
				p[g][k] += float64(d * d)
			}
			k++
		}
	}
	return p
}

// at is the squared distance of a pair, its parameters weighed.
func (p pairs) at(k int, weights []float64) (r2 float64) {
	for g, w := range weights {
		r2 += float64(w * p[g][k])
	}
	return r2
}

// hyper are the settings of a Gaussian process, as logarithms.
type hyper struct {
	// scales are the lengths over which the metric changes, one for each parameter.
	scales []float64
	// amplitude is the logarithm of the variance of the metric, and noise of that between two trials of one configuration.
	amplitude, noise float64
}

func (h hyper) vector() []float64 {
	return append(append([]float64{}, h.scales...), h.amplitude, h.noise)
}

func hyperOf(v []float64) hyper {
	n := len(v) - 2
	return hyper{scales: v[:n:n], amplitude: v[n], noise: v[n+1]}
}

// weights are 1 / length^2.
func (h hyper) weights() []float64 {
	w := make([]float64, len(h.scales))
	for g, s := range h.scales {
		w[g] = math.Exp(-2 * s)
	}
	return w
}

// matern is the Matérn kernel of smoothness 5/2 at a squared, scaled distance, without its amplitude; slope is 5/3 (1 + s) exp(-s), by which
// the derivative is the squared distance of a parameter over its length squared.
func matern(r2 float64) (k, slope float64) {
	s := sqrt5 * math.Sqrt(r2)
	e := decay(s)
	return float64((1 + s + float64(s*s)/3) * e), float64(5.0 / 3 * float64((1+s)*e))
}

// parts is how many parts an octave has in the table of decay.
const parts = 32

// fractions are 2^(-i / parts).
var fractions = func() (t [parts]float64) { //nolint:gochecknoglobals // a table
	for i := range t {
		t[i] = math.Exp2(-float64(i) / parts)
	}
	return t
}()

// decay is exp(-s) for s from 0 on, within 2e-12 of it. It takes a third of the time of math.Exp, which differs between machines, too.
func decay(s float64) float64 {
	if !(s < 700) {
		return 0
	}
	k := int(s*(parts/math.Ln2) + 0.5)
	r := float64(float64(k)*(math.Ln2/parts)) - s
	p := 1 + float64(r*(1+float64(r*(0.5+float64(r*(1.0/6+float64(r*(1.0/24))))))))
	return float64(p*fractions[k%parts]) * math.Float64frombits(uint64(1023-k/parts)<<52)
}
