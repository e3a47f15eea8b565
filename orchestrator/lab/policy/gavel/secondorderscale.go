package gavel

import "math"

// scaling computes Nesterov and Todd's scaling of s and z, with W z = W^-1 s = lambda, and returns false if a point is
// not inside.
func (c *secondOrderCone) scaling() bool {
	s, z, w, l := c.s.linear(), c.z.linear(), c.w.linear(), c.lambda.linear()
	for part := range s {
		for i, v := range s[part] {
			w[part][i] = z[part][i] / v
			l[part][i] = math.Sqrt(z[part][i] * v)
		}
	}
	for i := range c.n {
		if !c.scaleCone(i) {
			return false
		}
	}
	return true
}

// scaleCone computes the scaling of one second-order cone: W = eta (a q'; q I+qq'/(1+a)), stored in w.soc.
func (c *secondOrderCone) scaleCone(i int) bool {
	s, z := c.s.soc[3*i:3*i+3], c.z.soc[3*i:3*i+3]
	ss, zz := inside(s), inside(z)
	if !(ss > 0 && zz > 0) {
		return false
	}
	ns, nz := math.Sqrt(ss), math.Sqrt(zz)
	c.eta2[i] = ns / nz
	gamma := 1.0
	for k := range 3 {
		gamma += s[k] / ns * z[k] / nz
	}
	gamma = math.Sqrt(0.5 * gamma)
	w := c.w.soc[3*i : 3*i+3]
	w[0] = (s[0]/ns + z[0]/nz) / (2 * gamma)
	w[1] = (s[1]/ns - z[1]/nz) / (2 * gamma)
	w[2] = (s[2]/ns - z[2]/nz) / (2 * gamma)
	// W^-2 = (2 JwwJ - J) / eta^2, with J = diag(1, -1, -1).
	m := c.v[9*i : 9*i+9]
	u := [3]float64{w[0], -w[1], -w[2]}
	for k := range 3 {
		for n := range 3 {
			m[3*k+n] = 2 * u[k] * u[n] / c.eta2[i]
		}
	}
	m[0] -= 1 / c.eta2[i]
	m[4] += 1 / c.eta2[i]
	m[8] += 1 / c.eta2[i]
	copy(c.lambda.soc[3*i:3*i+3], z)
	c.timesW(i, c.lambda.soc[3*i:3*i+3])
	return true
}

// inside returns v0^2 - v1^2 - v2^2, as precisely as possible.
func inside(v []float64) float64 { return float64((v[0]-v[1])*(v[0]+v[1])) - float64(v[2]*v[2]) }

// timesW multiplies three numbers by the scaling of a cone.
func (c *secondOrderCone) timesW(i int, v []float64) {
	w, eta := c.w.soc[3*i:3*i+3], math.Sqrt(c.eta2[i])
	zeta := float64(w[1]*v[1]) + float64(w[2]*v[2])
	factor := v[0] + zeta/(1+w[0])
	v[0] = eta * (float64(w[0]*v[0]) + zeta)
	v[1] = eta * (v[1] + float64(factor*w[1]))
	v[2] = eta * (v[2] + float64(factor*w[2]))
}

// unscale multiplies by W.
func (c *secondOrderCone) unscale(p *cones) {
	v, w := p.linear(), c.w.linear()
	for part := range v {
		for k := range v[part] {
			v[part][k] /= math.Sqrt(w[part][k])
		}
	}
	for i := range c.n {
		c.timesW(i, p.soc[3*i:3*i+3])
	}
}

// corrected sets the aim of the combined step: lambda divided into lambda*lambda + ds*dz - mu, in the cones' products.
func (c *secondOrderCone) corrected(f *frame, mu float64) {
	l, ds, dz, aim := c.lambda.linear(), f.ds.linear(), f.dz.linear(), f.aim.linear()
	for part := range l {
		for k, v := range l[part] {
			aim[part][k] = (float64(v*v) + float64(ds[part][k]*dz[part][k]) - mu) / v
		}
	}
	for i := range c.n {
		at := func(p *cones) *[3]float64 { return (*[3]float64)(p.soc[3*i:]) }
		l, a, b := at(c.lambda), at(f.ds), at(f.dz)
		v := [3]float64{l[0]*l[0] + l[1]*l[1] + l[2]*l[2] + a[0]*b[0] + a[1]*b[1] + a[2]*b[2] - mu}
		for k := 1; k < 3; k++ {
			v[k] = 2*l[0]*l[k] + a[0]*b[k] + b[0]*a[k]
		}
		rho := inside(l[:])
		zeta := l[1]*v[1] + l[2]*v[2]
		factor := (zeta/l[0] - v[0]) / rho
		out := at(f.aim)
		out[0] = (l[0]*v[0] - zeta) / rho
		out[1], out[2] = factor*l[1]+v[1]/l[0], factor*l[2]+v[2]/l[0]
	}
}

// length returns the longest step that stays inside.
func (c *secondOrderCone) length(f *frame, dtau, dkappa float64) float64 {
	longest := longestStep
	shorten := func(value, step float64) {
		if step < 0 && longest*-step > value {
			longest = value / -step
		}
	}
	l, ds, dz := c.lambda.linear(), f.ds.linear(), f.dz.linear()
	for part := range l {
		for k, v := range l[part] {
			shorten(v, ds[part][k])
			shorten(v, dz[part][k])
		}
	}
	for i := range c.n {
		l := (*[3]float64)(c.lambda.soc[3*i:])
		for _, d := range []*[3]float64{(*[3]float64)(f.ds.soc[3*i:]), (*[3]float64)(f.dz.soc[3*i:])} {
			shorten(1, -coneStep(l, d))
		}
	}
	shorten(c.tau, dtau)
	shorten(c.kappa, dkappa)
	return longest
}

// coneStep returns the reciprocal of the longest step from l along d inside the cone, or at most 0 if it is unlimited.
func coneStep(l, d *[3]float64) float64 {
	norm := math.Sqrt(inside(l[:]))
	bar := [3]float64{l[0] / norm, l[1] / norm, l[2] / norm}
	along := bar[0]*d[0] - bar[1]*d[1] - bar[2]*d[2]
	factor := (along + d[0]) / (bar[0] + 1)
	return (math.Hypot(d[1]-factor*bar[1], d[2]-factor*bar[2]) - along) / norm
}
