package surrogate

import (
	"math"
)

// A lower is the lower triangle of a square matrix, row by row.
type lower struct {
	n int
	a []float64
}

func newLower(n int) lower { return lower{n, make([]float64, n*(n+1)/2)} }

func (l lower) row(i int) []float64 { return l.a[i*(i+1)/2 : i*(i+1)/2+i+1] }

// dot returns the dot product of two vectors. Products are rounded one by one, so that all machines compute the same
// result.
func dot(a, b []float64) float64 {
	b = b[:len(a)]
	s0, s1, s2, s3 := 0.0, 0.0, 0.0, 0.0
	i := 0
	for ; i+4 <= len(a); i += 4 {
		s0 += float64(a[i] * b[i])
		s1 += float64(a[i+1] * b[i+1])
		s2 += float64(a[i+2] * b[i+2])
		s3 += float64(a[i+3] * b[i+3])
	}
	for ; i < len(a); i++ {
		s0 += float64(a[i] * b[i])
	}
	return (s0 + s1) + (s2 + s3)
}

// cholesky replaces a symmetric matrix, given by its lower triangle, by its Cholesky factor L. It returns false if the
// matrix is not positive definite.
func (l lower) cholesky() bool {
	for i := range l.n {
		ri := l.row(i)
		for j := range i {
			rj := l.row(j)
			ri[j] = (ri[j] - dot(ri[:j], rj[:j])) / rj[j]
		}
		d := ri[i] - dot(ri[:i], ri[:i])
		if !(d > 0) {
			return false
		}
		ri[i] = math.Sqrt(d)
	}
	return true
}

// inverse returns the inverse of a lower triangular matrix.
func (l lower) inverse() lower {
	inv := newLower(l.n)
	// Column by column: L x = e_j.
	col := make([]float64, l.n)
	for j := range l.n {
		for i := j; i < l.n; i++ {
			ri := l.row(i)
			s := 0.0
			if i == j {
				s = 1
			}
			s -= dot(ri[j:i], col[j:i])
			col[i] = s / ri[i]
			inv.row(i)[j] = col[i]
		}
	}
	return inv
}

// times returns the product with a vector, timesT that of the transpose.
func (l lower) times(v []float64) []float64 {
	out := make([]float64, l.n)
	for i := range out {
		out[i] = dot(l.row(i), v[:i+1])
	}
	return out
}

func (l lower) timesT(v []float64) []float64 {
	out := make([]float64, l.n)
	for i := range out {
		for j, x := range l.row(i) {
			out[j] += float64(x * v[i])
		}
	}
	return out
}

// gram returns the lower triangle of the transpose times the matrix. For the inverse of a Cholesky factor, that is the
// inverse of the factored matrix.
func (l lower) gram() lower {
	g := newLower(l.n)
	for k := range l.n {
		r := l.row(k)
		for i, x := range r {
			gi := g.row(i)
			for j := range gi {
				gi[j] += float64(x * r[j])
			}
		}
	}
	return g
}
