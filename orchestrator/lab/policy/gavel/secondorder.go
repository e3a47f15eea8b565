package gavel

// secondOrderCone solves finish-time fairness in the form in which Gavel passes it to ECOS: minimise rho over X, rho
// and one t for each job, such that t >= 1/rate(X) and rho >= elapsed + steps*t, both over the isolated time. The first
// is the second-order cone rate+t >= |(rate-t, 2)|. The rest is ECOS's method as in homogeneousLP, with Nesterov and
// Todd's scaling: if only one job determines rho, the allocation of all others depends on the path.
type secondOrderCone struct {
	*program
	x, t  []float64 // X, and t of each job
	rho   float64
	s, z  *cones
	tau   float64
	kappa float64
	// w is the scaling: prices over slacks for the linear cones, and NT's eta, a, q for the others; lambda is the
	// scaled s and z.
	w, lambda *cones
	eta2      []float64
	v         []float64 // W^-2 of each second-order cone, 9 numbers
	// inverse holds each job's inverted block, r^2 numbers, and solved the image of its coupling to rho. own, cross and
	// at are used to eliminate t. plain means that the cones are scaled like the others, by eta alone.
	inverse, solved, own, cross, at []float64
	chol, system                    []float64
	plain                           bool
}

// cones holds slacks or prices: of x >= 0, of each job's time, of rho, of t, three each, and of types.
type cones struct{ x, row, lin, soc, cap []float64 }

func newCones(n, r int) *cones {
	flat := make([]float64, n*r+5*n+r)
	return &cones{
		x: cut(&flat, n*r), row: cut(&flat, n), lin: cut(&flat, n), soc: cut(&flat, 3*n), cap: cut(&flat, r),
	}
}

func cut(flat *[]float64, n int) []float64 {
	part := (*flat)[:n:n]
	*flat = (*flat)[n:]
	return part
}

func (c *cones) linear() [4][]float64 { return [4][]float64{c.x, c.row, c.lin, c.cap} }

// solution is a part of a step: X, t, rho, and prices.
type solution struct {
	x, t []float64
	rho  float64
	z    *cones
}

func (p *program) newSolution() *solution {
	return &solution{x: make([]float64, p.n*p.r), t: make([]float64, p.n), z: newCones(p.n, p.r)}
}

func (p *program) secondOrderCone() *secondOrderCone {
	n, r := p.n, p.r
	return &secondOrderCone{
		program: p, x: make([]float64, n*r), t: make([]float64, n), s: newCones(n, r), z: newCones(n, r), tau: 1, kappa: 1,
		w: newCones(n, r), lambda: newCones(n, r), eta2: make([]float64, n), v: make([]float64, 9*n),
		inverse: make([]float64, n*r*r), solved: make([]float64, n*r), chol: make([]float64, r*r),
		own: make([]float64, n), cross: make([]float64, n), at: make([]float64, n), system: make([]float64, (r+1)*(r+2)),
	}
}

// image writes Gx.
func (c *secondOrderCone) image(x, t []float64, rho float64, out *cones) {
	r := c.r
	clear(out.cap)
	for i := range c.n {
		sum, rate := 0.0, 0.0
		for j := range r {
			k := i*r + j
			out.x[k] = -x[k]
			sum += x[k]
			rate += float64(c.rate[k] * x[k])
			out.cap[j] += float64(c.mass[i] * x[k])
		}
		out.row[i] = sum
		out.lin[i] = float64(c.need[i].steps*t[i]) - rho
		out.soc[3*i], out.soc[3*i+1], out.soc[3*i+2] = -rate-t[i], t[i]-rate, 0
	}
}

// transposed writes G'z, and returns its entry for rho.
func (c *secondOrderCone) transposed(z *cones, x, t []float64) (rho float64) {
	r := c.r
	for i := range c.n {
		both := z.soc[3*i] + z.soc[3*i+1]
		for j := range r {
			k := i*r + j
			x[k] = z.row[i] - z.x[k] + float64(c.scale[i]*z.cap[j]) - float64(c.rate[k]*both)
		}
		t[i] = float64(c.need[i].steps*z.lin[i]) - z.soc[3*i] + z.soc[3*i+1]
		rho -= float64(c.count[i] * z.lin[i])
	}
	return rho
}

// limits writes h.
func (c *secondOrderCone) limits(h *cones) {
	clear(h.x)
	for i := range c.n {
		h.row[i], h.lin[i] = 1, -c.need[i].elapsed
		h.soc[3*i], h.soc[3*i+1], h.soc[3*i+2] = 0, 0, 2
	}
	copy(h.cap, c.workers)
}

// inner returns a'b over all cones.
func (c *secondOrderCone) inner(a, b *cones) float64 {
	sum := 0.0
	for i, m := range c.count {
		part := float64(a.row[i]*b.row[i]) + float64(a.lin[i]*b.lin[i])
		for k := 3 * i; k < 3*i+3; k++ {
			part += float64(a.soc[k] * b.soc[k])
		}
		for k := i * c.r; k < (i+1)*c.r; k++ {
			part += float64(a.x[k] * b.x[k])
		}
		sum += float64(m * part)
	}
	for j := range a.cap {
		sum += float64(a.cap[j] * b.cap[j])
	}
	return sum
}

// factor inverts each job's block of G'W^-2G, without t, and builds the system of types' prices and rho. A cone adds
// [aa at; at tt] to rate and t, whose determinant is known; with t eliminated by hand nothing cancels.
func (c *secondOrderCone) factor() bool {
	r := c.r
	w := r + 2
	clear(c.system)
	slack := 0.0
	for i := range c.n {
		m, a := c.inverse[i*r*r:(i+1)*r*r], c.rate[i*r:(i+1)*r]
		u, eta2 := c.w.soc[3*i:3*i+3], c.eta2[i]
		p, q := u[0]-u[1], u[0]+u[1] // their product is 1 + u2^2
		if u[1] > 0 {
			p = (1 + u[2]*u[2]) / q
		} else {
			q = (1 + u[2]*u[2]) / p
		}
		aa, at, tt := 2*p*p/eta2, (2*p*q-2)/eta2, 2*q*q/eta2
		det := (4 + 8*u[2]*u[2]) / (eta2 * eta2)
		if c.plain {
			aa, at, tt = 2/eta2, 0, 2/eta2
			det = aa * tt
		}
		steps := c.need[i].steps
		bound := c.w.lin[i] * steps * steps
		c.own[i], c.cross[i] = 1/(tt+bound), at/(tt+bound)
		c.at[i] = at
		own := (det + aa*bound) * c.own[i]
		for j := range r {
			for k := range j + 1 {
				m[j*r+k] = c.w.row[i] + float64(own*a[j]*a[k])
			}
			m[j*r+j] += c.w.x[i*r+j]
		}
		if !invert(m, c.chol, r) {
			return false
		}
		pull := c.w.lin[i] * steps * c.cross[i] // couples X to rho, along the rates
		mass, count := c.mass[i], c.count[i]
		for j := range r {
			row := m[j*r : (j+1)*r]
			sum := pull * inner(row, a)
			c.solved[i*r+j] = sum
			for k, v := range row {
				c.system[j*w+k] += float64(mass * c.scale[i] * v)
			}
			c.system[j*w+r] += float64(mass * sum)
			c.system[r*w+r] += float64(count * pull * a[j] * sum)
		}
		slack += float64(count * c.w.lin[i] * tt * c.own[i])
	}
	for j := range r {
		c.system[j*w+j] += 1 / c.w.cap[j]
		c.system[r*w+j] = c.system[j*w+r]
	}
	c.system[r*w+r] -= slack
	return true
}

// solveFor solves G'z = (bx, bt, brho) and Gx - W^2 z = bz.
func (c *secondOrderCone) solveFor(bx, bt []float64, brho float64, bz *cones, out *solution) {
	r := c.r
	w := r + 2
	for j := range r {
		c.system[j*w+r+1] = -bz.cap[j]
	}
	last := -brho
	rhs := make([]float64, r)
	for i := range c.n {
		v, h := c.v[9*i:9*i+9], bz.soc[3*i:3*i+3]
		g0 := float64(v[0]*h[0]) + float64(v[1]*h[1]) + float64(v[2]*h[2])
		g1 := float64(v[3]*h[0]) + float64(v[4]*h[1]) + float64(v[5]*h[2])
		share := c.w.lin[i] * bz.lin[i]
		own := bt[i] + float64(c.need[i].steps*share) - g0 + g1
		along := g0 + g1 + float64(c.cross[i]*own)
		for j := range r {
			k := i*r + j
			rhs[j] = bx[k] - float64(c.w.x[k]*bz.x[k]) + float64(c.w.row[i]*bz.row[i]) - float64(c.rate[k]*along)
		}
		out.t[i] = own
		last += float64(c.count[i] * (share - float64(c.w.lin[i]*c.need[i].steps*c.own[i]*own)))
		for j := range r {
			k := i*r + j
			x := inner(c.inverse[k*r:(k+1)*r], rhs)
			out.x[k] = x
			last += float64(c.count[i] * c.solved[k] * rhs[j])
			c.system[j*w+r+1] += float64(c.mass[i] * x)
		}
	}
	c.system[r*w+r+1] = last
	prices := eliminate(c.system, r+1)
	copy(out.z.cap, prices[:r])
	out.rho = prices[r]
	for i := range c.n {
		rate := 0.0
		for j := range r {
			k := i*r + j
			out.x[k] -= float64(c.solved[k]*out.rho) + float64(c.scale[i]*inner(c.inverse[k*r:(k+1)*r], out.z.cap))
			rate += float64(c.rate[k] * out.x[k])
		}
		out.t[i] = c.own[i] * (out.t[i] - float64(c.at[i]*rate) + float64(c.w.lin[i]*c.need[i].steps*out.rho))
	}
	c.pricesOf(bz, out)
}

// pricesOf computes z = W^-2(Gx - bz) for all but the types.
func (c *secondOrderCone) pricesOf(bz *cones, out *solution) {
	r := c.r
	for i := range c.n {
		sum, rate := 0.0, 0.0
		for j := range r {
			k := i*r + j
			sum += out.x[k]
			rate += float64(c.rate[k] * out.x[k])
			out.z.x[k] = c.w.x[k] * (-out.x[k] - bz.x[k])
		}
		out.z.row[i] = c.w.row[i] * (sum - bz.row[i])
		out.z.lin[i] = c.w.lin[i] * (float64(c.need[i].steps*out.t[i]) - out.rho - bz.lin[i])
		g0, g1, g2 := -rate-out.t[i]-bz.soc[3*i], out.t[i]-rate-bz.soc[3*i+1], -bz.soc[3*i+2]
		v := c.v[9*i : 9*i+9]
		for k := range 3 {
			out.z.soc[3*i+k] = float64(v[3*k]*g0) + float64(v[3*k+1]*g1) + float64(v[3*k+2]*g2)
		}
	}
}
