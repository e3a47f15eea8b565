package gavel

import "math"

// follow runs the method and returns the point with the smallest gap, in the form of the other solvers, where gap
// evaluates X and the types' prices.
func (p *program) follow(gap func(*point) float64) (*point, int) {
	c := p.secondOrderCone()
	c.begin()
	best, found, bestGap, steps := newPoint(p.n, p.r), newPoint(p.n, p.r), math.Inf(1), 0
	f := c.frame()
	for ; steps < maxSteps; steps++ {
		done := c.measure(f)
		if done || f.gap < 1e-4 {
			c.answer(found)
			if g := gap(found); g < bestGap || done && g < withCones {
				best.copy(found)
				bestGap = g
			}
		}
		// A step that is too short means that rounding dominates the cones.
		if done || math.IsNaN(f.gap) || !c.advance(f) || f.moved < stuck && bestGap < withCones {
			break
		}
	}
	return best, steps
}

// withCones is the relative gap that is sufficient here, because cones on their boundary cost precision.
const withCones = 3 * Acceptable

// stuck is the step length below which the method stops.
const stuck = 0.1

// frame is the working memory of a step.
type frame struct {
	rx, rt   []float64
	rrho     float64
	rz       *cones
	rtau     float64
	gap      float64
	moved    float64
	h, bz    *cones
	bx, bt   []float64
	brho     float64
	one, two *solution
	ds, dz   *cones // scaled: W^-1 ds and W dz
	aim      *cones
	// more and the following are used by refine.
	leftZ, square *cones
	more          *solution
	leftX, leftT  []float64
}

func (c *secondOrderCone) frame() *frame {
	room := func() *cones { return newCones(c.n, c.r) }
	f := &frame{
		rx: make([]float64, c.n*c.r), rt: make([]float64, c.n), rz: room(), h: room(), bz: room(), bx: make([]float64, c.n*c.r),
		bt: make([]float64, c.n), one: c.newSolution(), two: c.newSolution(), ds: room(), dz: room(), aim: room(),
		leftZ: room(), square: room(), more: c.newSolution(), leftX: make([]float64, c.n*c.r), leftT: make([]float64, c.n),
	}
	c.limits(f.h)
	return f
}

// begin sets the least-squares starting point in Ruiz's scaling, shifted into the cones by one constant each.
func (c *secondOrderCone) begin() {
	scale := c.equilibrate()
	weigh := func(w, scale []float64) {
		for i, r := range scale {
			w[i] = 1 / (r * r)
		}
	}
	weigh(c.w.x, scale.x)
	weigh(c.w.row, scale.row)
	weigh(c.w.lin, scale.lin)
	weigh(c.w.cap, scale.cap)
	clear(c.v)
	c.plain = true
	for i := range c.n {
		c.eta2[i] = scale.soc[3*i] * scale.soc[3*i]
		for k := range 3 {
			c.v[9*i+4*k] = 1 / (scale.soc[3*i] * scale.soc[3*i])
		}
	}
	c.factor()
	c.plain = false
	h, none := newCones(c.n, c.r), newCones(c.n, c.r)
	c.limits(h)
	zero, flat := make([]float64, c.n*c.r), make([]float64, c.n)
	one, two := c.newSolution(), c.newSolution()
	c.solveFor(zero, flat, 0, h, one)
	c.solveFor(zero, flat, -1, none, two)
	copy(c.x, one.x)
	copy(c.t, one.t)
	c.rho = one.rho
	c.image(c.x, c.t, c.rho, c.s)
	each := func(do func(s, z, h, first, scale []float64)) {
		do(c.s.x, c.z.x, h.x, two.z.x, scale.x)
		do(c.s.row, c.z.row, h.row, two.z.row, scale.row)
		do(c.s.lin, c.z.lin, h.lin, two.z.lin, scale.lin)
		do(c.s.cap, c.z.cap, h.cap, two.z.cap, scale.cap)
		do(c.s.soc, c.z.soc, h.soc, two.z.soc, scale.soc)
	}
	each(func(s, z, h, first, scale []float64) {
		for i, r := range scale {
			s[i], z[i] = (h[i]-s[i])/r, first[i]*r
		}
	})
	c.shift(c.s, shiftIntoTheCone+outside(c.s))
	c.shift(c.z, shiftIntoTheCone+outside(c.z))
	each(func(s, z, _, _, scale []float64) {
		for i, r := range scale {
			s[i] *= r
			z[i] /= r
		}
	})
}

// outside returns how far a point is outside the cones.
func outside(c *cones) float64 {
	worst := -shortOfBoundary
	for _, v := range c.linear() {
		for _, x := range v {
			if x <= 0 {
				worst = max(worst, -x)
			}
		}
	}
	for i := 0; i < len(c.soc); i += 3 {
		if x := c.soc[i] - math.Hypot(c.soc[i+1], c.soc[i+2]); x <= 0 {
			worst = max(worst, -x)
		}
	}
	return worst
}

func (c *secondOrderCone) shift(p *cones, by float64) {
	for _, v := range p.linear() {
		for i := range v {
			v[i] += by
		}
	}
	for i := range c.n {
		p.soc[3*i] += by
	}
}

// equilibrate is Ruiz's scaling, as for linear programs; the rows of a cone are scaled alike, by their sum.
func (c *secondOrderCone) equilibrate() *cones {
	r := c.r
	rows, cols := newCones(c.n, r), newCones(c.n, r) // of cols only x, lin for t, and cap[0] for rho
	ones := func(p *cones) {
		for _, v := range append(append([][]float64(nil), p.x, p.row, p.lin, p.cap), p.soc) {
			for i := range v {
				v[i] = 1
			}
		}
	}
	ones(rows)
	ones(cols)
	rho := 1.0
	root := func(x float64) float64 {
		if x < scaledBelow {
			return 1
		}
		return math.Sqrt(x)
	}
	for range roundsOfScaling {
		top, right, rightRho := newCones(c.n, r), newCones(c.n, r), 0.0
		entry := func(row, col *float64, g, scale, across float64) {
			g = math.Abs(g) / scale / across
			*row, *col = max(*row, g), max(*col, g)
		}
		for i := range c.n {
			for j := range r {
				k := i*r + j
				entry(&top.x[k], &right.x[k], 1, rows.x[k], cols.x[k])
				entry(&top.row[i], &right.x[k], 1, rows.row[i], cols.x[k])
				entry(&top.cap[j], &right.x[k], c.scale[i], rows.cap[j], cols.x[k])
				entry(&top.soc[3*i], &right.x[k], c.rate[k], rows.soc[3*i], cols.x[k])
				entry(&top.soc[3*i+1], &right.x[k], c.rate[k], rows.soc[3*i], cols.x[k])
			}
			entry(&top.soc[3*i], &right.lin[i], 1, rows.soc[3*i], cols.lin[i])
			entry(&top.soc[3*i+1], &right.lin[i], 1, rows.soc[3*i], cols.lin[i])
			entry(&top.lin[i], &right.lin[i], c.need[i].steps, rows.lin[i], cols.lin[i])
			entry(&top.lin[i], &rightRho, 1, rows.lin[i], rho)
		}
		for i := range c.n {
			sum := top.soc[3*i] + top.soc[3*i+1]
			for k := range 3 {
				rows.soc[3*i+k] *= root(sum)
			}
			rows.row[i] *= root(top.row[i])
			rows.lin[i] *= root(top.lin[i])
			cols.lin[i] *= root(right.lin[i])
		}
		for k := range rows.x {
			rows.x[k] *= root(top.x[k])
			cols.x[k] *= root(right.x[k])
		}
		for j := range r {
			rows.cap[j] *= root(top.cap[j])
		}
		rho *= root(rightRho)
	}
	return rows
}

// measure computes the residuals and the gap, and reports whether ECOS would stop.
func (c *secondOrderCone) measure(f *frame) bool {
	f.rrho = c.transposed(c.z, f.rx, f.rt)
	nx := c.norm(f.rx, f.rt, f.rrho+c.tau)
	for k := range f.rx {
		f.rx[k] = -f.rx[k]
	}
	for i := range f.rt {
		f.rt[i] = -f.rt[i]
	}
	f.rrho = -f.rrho - c.tau
	c.image(c.x, c.t, c.rho, f.rz)
	combine(f.rz, c.s, 1)
	combine(f.rz, f.h, -c.tau)
	hz, cx := c.inner(f.h, c.z), c.rho
	f.rtau = c.kappa + cx + hz
	product := c.inner(c.s, c.z)
	f.gap = math.Abs(cx+hz) / max(1e-300, min(math.Abs(cx), math.Abs(hz)))
	size := func(p *cones) float64 { return math.Sqrt(c.inner(p, p)) }
	primal := size(f.rz) / max(max(1, size(f.h))+c.norm(c.x, c.t, c.rho)+size(c.s), 1) / c.tau
	dual := nx / max(1+size(c.z), 1) / c.tau
	return primal < feasibleWithin && dual < feasibleWithin && (product < objectiveWithin || product < -hz/c.tau*objectiveWithin)
}

// norm returns the norm of X, t and rho.
func (c *secondOrderCone) norm(x, t []float64, rho float64) float64 {
	sum := rho * rho
	for i, m := range c.count {
		part := float64(t[i] * t[i])
		for k := i * c.r; k < (i+1)*c.r; k++ {
			part += float64(x[k] * x[k])
		}
		sum += float64(m * part)
	}
	return math.Sqrt(sum)
}

// combine adds factor*b to a.
func combine(a, b *cones, factor float64) {
	add(a.x, b.x, factor)
	add(a.row, b.row, factor)
	add(a.lin, b.lin, factor)
	add(a.soc, b.soc, factor)
	add(a.cap, b.cap, factor)
}

// advance makes one step, and returns false if it cannot.
func (c *secondOrderCone) advance(f *frame) bool {
	if !c.scaling() || !c.factor() {
		return false
	}
	degree := float64(c.r) + 1
	for _, m := range c.count {
		degree += m * float64(c.r+3)
	}
	mu := (c.inner(c.s, c.z) + c.kappa*c.tau) / degree
	clear(f.bx)
	clear(f.bt)
	c.refine(f, f.bx, f.bt, -1, f.h, f.one)
	denominator := c.kappa/c.tau - f.one.rho - c.inner(f.h, f.one.z)

	// Affine.
	c.aside(f, 1, nil)
	c.refine(f, f.bx, f.bt, f.brho, f.bz, f.two)
	dtau := (f.rtau - c.kappa + f.two.rho + c.inner(f.h, f.two.z)) / denominator
	dkappa := -c.kappa - c.kappa/c.tau*dtau
	c.scaled(f, dtau, nil)
	alpha := c.length(f, dtau, dkappa)
	sigma := min(max(math.Pow(1-alpha, 3), leastCentring), 1)

	// Combined.
	c.corrected(f, sigma*mu)
	bkappa := c.kappa*c.tau + dkappa*dtau - sigma*mu
	c.aside(f, 1-sigma, f.aim)
	c.refine(f, f.bx, f.bt, f.brho, f.bz, f.two)
	dtau = ((1-sigma)*f.rtau - bkappa/c.tau + f.two.rho + c.inner(f.h, f.two.z)) / denominator
	dkappa = -(bkappa + c.kappa*dtau) / c.tau
	c.scaled(f, dtau, f.aim)
	alpha = shortOfBoundary * c.length(f, dtau, dkappa)
	if !(alpha > 0) || math.IsNaN(dtau) {
		return false
	}
	f.moved = alpha
	// The slacks' step is computed from X's, which keeps the precision that W^2 dz loses.
	c.image(f.two.x, f.two.t, f.two.rho, f.ds)
	combine(c.s, f.ds, -alpha)
	combine(c.s, f.rz, -alpha*(1-sigma))
	combine(c.s, f.h, alpha*dtau)
	combine(c.z, f.two.z, alpha)
	add(c.x, f.two.x, alpha)
	add(c.t, f.two.t, alpha)
	c.rho += alpha * f.two.rho
	c.tau += alpha * dtau
	c.kappa += alpha * dkappa
	return true
}

// aside sets the right hand side: a part of the residuals, and W times aim, or s if aim is nil.
func (c *secondOrderCone) aside(f *frame, part float64, aim *cones) {
	for k, v := range f.rx {
		f.bx[k] = part * v
	}
	for i, v := range f.rt {
		f.bt[i] = part * v
	}
	f.brho = part * f.rrho
	f.bz.zero()
	if aim == nil {
		combine(f.bz, c.s, 1)
	} else {
		combine(f.bz, aim, 1)
		c.unscale(f.bz)
	}
	combine(f.bz, f.rz, -part)
}

func (c *cones) zero() {
	for _, v := range c.linear() {
		clear(v)
	}
	clear(c.soc)
}

// scaled adds dtau times the first solution to the second, and sets W dz and W^-1 ds = -(aim + W dz), where a nil aim
// means lambda.
func (c *secondOrderCone) scaled(f *frame, dtau float64, aim *cones) {
	add(f.two.x, f.one.x, dtau)
	add(f.two.t, f.one.t, dtau)
	f.two.rho += dtau * f.one.rho
	combine(f.two.z, f.one.z, dtau)
	f.dz.zero()
	combine(f.dz, f.two.z, 1)
	c.unscale(f.dz)
	if aim == nil {
		aim = c.lambda
	}
	f.ds.zero()
	combine(f.ds, aim, -1)
	combine(f.ds, f.dz, -1)
}

// refine solves, and then solves for the residual.
func (c *secondOrderCone) refine(f *frame, bx, bt []float64, brho float64, bz *cones, out *solution) {
	c.solveFor(bx, bt, brho, bz, out)
	for range refinements {
		left := brho - c.transposed(out.z, f.leftX, f.leftT)
		worst := math.Abs(left)
		for k, v := range f.leftX {
			f.leftX[k] = bx[k] - v
			worst = max(worst, math.Abs(f.leftX[k]))
		}
		for i, v := range f.leftT {
			f.leftT[i] = bt[i] - v
			worst = max(worst, math.Abs(f.leftT[i]))
		}
		// bz - Gx + W^2 z; the types' rows are solved directly.
		c.image(out.x, out.t, out.rho, f.leftZ)
		f.square.zero()
		combine(f.square, out.z, 1)
		c.unscale(f.square)
		c.unscale(f.square)
		combine(f.square, bz, 1)
		combine(f.square, f.leftZ, -1)
		worst = max(worst, math.Sqrt(c.inner(f.square, f.square)))
		if worst < goodEnough {
			return
		}
		c.solveFor(f.leftX, f.leftT, left, f.square, f.more)
		add(out.x, f.more.x, 1)
		add(out.t, f.more.t, 1)
		out.rho += f.more.rho
		combine(out.z, f.more.z, 1)
	}
}

// refinements is the most refinements of a solution.
const refinements = 2

// answer writes the X that the point represents, within its constraints, and the types' prices.
func (c *secondOrderCone) answer(to *point) {
	r := c.r
	used := make([]float64, r)
	for i := range c.n {
		sum := 0.0
		for k := i * r; k < (i+1)*r; k++ {
			to.x[k] = min(max(c.x[k]/c.tau, 0), 1)
			sum += to.x[k]
		}
		for k := i * r; k < (i+1)*r; k++ {
			to.x[k] /= max(1, sum)
			used[k-i*r] += float64(c.mass[i] * to.x[k])
		}
	}
	for k := range to.x {
		if u := used[k%r]; u > c.workers[k%r] {
			to.x[k] *= c.workers[k%r] / u
		}
	}
	for j, y := range c.z.cap {
		to.price[j] = y / c.tau
	}
}
