package surrogate

import (
	"math"
)

// sqrt5 is a constant of the Matérn kernel.
const sqrt5 = 2.23606797749978969

// pairs are the squared distances of all pairs of points for each parameter: squares[g] holds n * (n - 1) / 2 distances,
// row by row.
type pairs struct {
	squares [][]float64
	// shared is a lower triangle that is added to the covariance, or nil.
	shared []float64
}

// distances computes the pairs. columns maps each column of a point to its parameter.
func distances(x [][]float64, groups int, columns []int) [][]float64 {
	p := make([][]float64, groups)
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

// at returns the weighted squared distance of pair k.
func (p pairs) at(k int, weights []float64) (r2 float64) {
	for g, w := range weights {
		r2 += float64(w * p.squares[g][k])
	}
	return r2
}

// hyper holds the settings of a Gaussian process as logarithms.
type hyper struct {
	// scales are the lengths over which the metric changes, one for each parameter.
	scales []float64
	// amplitude is the logarithm of the variance of the metric, noise that of the variance between trials of one
	// configuration.
	amplitude, noise float64
}

func (h hyper) vector() []float64 {
	return append(append([]float64{}, h.scales...), h.amplitude, h.noise)
}

func hyperOf(v []float64) hyper {
	n := len(v) - 2
	return hyper{scales: v[:n:n], amplitude: v[n], noise: v[n+1]}
}

// weights returns 1 / length^2 for each parameter.
func (h hyper) weights() []float64 {
	w := make([]float64, len(h.scales))
	for g, s := range h.scales {
		w[g] = math.Exp(-2 * s)
	}
	return w
}

// matern returns the Matérn kernel with smoothness 5/2 at a squared, scaled distance, without the amplitude. slope is
// 5/3 (1 + s) exp(-s); times a parameter's squared distance over its squared length, it gives the derivative.
func matern(r2 float64) (k, slope float64) {
	s := sqrt5 * math.Sqrt(r2)
	e := decay(s)
	return float64((1 + s + float64(s*s)/3) * e), float64(5.0 / 3 * float64((1+s)*e))
}

// parts is the number of table entries for an octave in decay.
const parts = 32

// fractions are 2^(-i / parts).
var fractions = func() (t [parts]float64) { //nolint:gochecknoglobals // a table
	for i := range t {
		t[i] = math.Exp2(-float64(i) / parts)
	}
	return t
}()

// decay returns exp(-s) for s >= 0 with an error below 2e-12. It takes a third of the time of math.Exp and, unlike
// math.Exp, gives the same result on every machine.
func decay(s float64) float64 {
	if !(s < 700) {
		return 0
	}
	k := int(s*(parts/math.Ln2) + 0.5)
	r := float64(float64(k)*(math.Ln2/parts)) - s
	p := 1 + float64(r*(1+float64(r*(0.5+float64(r*(1.0/6+float64(r*(1.0/24))))))))
	return float64(p*fractions[k%parts]) * math.Float64frombits(uint64(1023-k/parts)<<52)
}
