package curve

import "math"

// A member is one shape fitted to a curve: the posterior of Bayesian linear regression on (1, phi) under a
// normal-inverse-gamma prior (Bishop 2006, exercise 3.12).
type member struct {
	shape shape
	// weight is the log evidence until the weights are normalised.
	weight float64
	// first and newest are phi at the first and the newest point, used to normalise phi.
	first, newest float64
	level, change float64
	// noise is the expected variance of a point; the others are the posterior's covariance divided by the noise.
	noise, aa, ab, bb float64
}

// The prior of the regression, in units of the curve's spread. It matters only for short curves.
const (
	// priorNoise is the prior noise, with the weight of priorPoints points.
	priorNoise  = 0.05
	priorPoints = 1.0
	// priorPrecision is the precision of level and change, times the noise: their prior deviation is one unit of
	// spread.
	priorPrecision = priorNoise * priorNoise
)

// basis returns phi, scaled to 1 at the first point and 0 at the newest.
func (m *member) basis(u float64) float64 {
	if m.first == m.newest {
		return 0
	}
	return (m.shape.at(u) - m.newest) / (m.first - m.newest)
}

// regress fits a shape to points us, ys with weights ws. Its weight is its log evidence without the terms that all
// shapes share.
func regress(s shape, us, ys, ws []float64) member {
	m := member{shape: s, first: s.at(us[0]), newest: s.at(1)}
	var sw, sx, sxx, sy, sxy, syy float64
	for i, u := range us {
		x, y, w := m.basis(u), ys[i], ws[i]
		sw += w
		sx += w * x
		sxx += w * x * x
		sy += w * y
		sxy += w * x * y
		syy += w * y * y
	}
	p11, p22 := sw+priorPrecision, sxx+priorPrecision
	det := p11*p22 - sx*sx
	m.aa, m.ab, m.bb = p22/det, -sx/det, p11/det
	m.level = m.aa*sy + m.ab*sxy
	m.change = m.ab*sy + m.bb*sxy
	a := (priorPoints + sw) / 2
	b := (priorPoints*priorNoise*priorNoise + max(0, syy-m.level*sy-m.change*sxy)) / 2
	m.noise = b / a
	m.weight = s.prior - math.Log(det)/2 - a*math.Log(b)
	return m
}

// at returns the mean of a point at u, and its variance.
func (m *member) at(u float64) (mean, variance float64) {
	x := m.basis(u)
	mean = min(max(m.level+m.change*x, -maxUnits), maxUnits)
	return mean, m.noise * (1 + m.aa + 2*m.ab*x + m.bb*x*x)
}

// normalise converts log evidence to weights that sum to 1.
func normalise(members []member) {
	top, sum := math.Inf(-1), 0.0
	for i := range members {
		top = max(top, members[i].weight)
	}
	for i := range members {
		members[i].weight = math.Exp(members[i].weight - top)
		sum += members[i].weight
	}
	for i := range members {
		members[i].weight /= sum
	}
}
