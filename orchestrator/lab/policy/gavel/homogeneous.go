package gavel

import "math"

// homogeneousLP solves a linear program by the primal-dual method on the homogeneous self-dual embedding, with the
// starting point, step lengths and stopping rule of ECOS (Domahidi, Chu and Boyd, ECC 2013), which Gavel's published
// runs used: if there are many optima, it ends near the same one. In minimising form: min c'x with Gx + s = h, s >= 0
// and multipliers z, x being the allocation and t; tau and kappa scale the whole.
type homogeneousLP struct {
	*newton
	alloc      []float64
	tau, kappa float64
	// one and two are the solutions of the system for (-c, h) and for the residuals.
	one, two *point
	// rx, rt and rz are the residuals of the dual, of its t and of the primal; rz is stored in a point's slacks.
	rx  []float64
	rt  float64
	rz  *point
	gap float64
	// bx and bz are the current right hand side.
	bx []float64
	bz *point
	// left, nothing and more are used to refine a solution.
	left          []float64
	nothing, more *point
}

// Step lengths as in ECOS.
const (
	shortOfBoundary  = 0.99
	longestStep      = 0.999
	leastCentring    = 1e-4
	roundsOfScaling  = 3
	scaledBelow      = 1e-6
	feasibleWithin   = 1e-8
	objectiveWithin  = 1e-8
	shiftIntoTheCone = 1.0
	refinedBelow     = 1e-5
	goodEnough       = 1e-11
)

// solveHomogeneous runs the method and returns the point with the smallest gap, where gap evaluates X and prices. It
// stops where ECOS does, or when the gap is at most enough.
func (p *program) solveHomogeneous(enough float64, gap func(*point) float64) (*point, int) {
	e := &homogeneousLP{newton: p.newton(), alloc: make([]float64, p.n*p.r), tau: 1, kappa: 1}
	e.one, e.two, e.rz, e.bz = newPoint(p.n, p.r), newPoint(p.n, p.r), newPoint(p.n, p.r), newPoint(p.n, p.r)
	e.rx, e.bx, e.left = make([]float64, p.n*p.r), make([]float64, p.n*p.r), make([]float64, p.n*p.r)
	e.nothing, e.more = newPoint(p.n, p.r), newPoint(p.n, p.r)
	if p.goal != 0 {
		for i := range p.need {
			e.d1[i] = p.need[i].slope
		}
	}
	e.begin()
	best, found, bestGap, stale, steps := newPoint(p.n, p.r), newPoint(p.n, p.r), math.Inf(1), 0, 0
	judge := func() {
		e.answer(found)
		if g := gap(found); g < bestGap {
			best.copy(found)
			bestGap, stale = g, 0
		} else {
			stale++
		}
	}
	for ; steps < maxSteps; steps++ {
		e.measure()
		done := e.converged()
		if done || e.gap < 10*Acceptable {
			judge()
		}
		if done && bestGap <= Acceptable || bestGap <= enough || stale > patience && (bestGap < Acceptable || stale > hopeless) || math.IsNaN(e.gap) {
			break
		}
		if !e.advance() {
			judge()
			break
		}
	}
	return best, steps
}

// begin sets the least-squares starting point, in a scaling that it chooses.
func (e *homogeneousLP) begin() {
	scale := e.equilibrate()
	// A price of 1 for slacks of the scale squared makes the system that of weighted least squares.
	square := func(s, z, scale []float64) {
		for i, r := range scale {
			s[i], z[i] = r*r, 1
		}
	}
	square(e.x, e.zx, scale.x)
	square(e.row, e.zrow, scale.row)
	square(e.over, e.zover, scale.over)
	square(e.free, e.price, scale.free)
	e.factor()
	clear(e.bx)
	e.limits(e.bz, 1)
	e.solveFor(e.bx, 0, e.bz, e.one)
	copy(e.alloc, e.one.x)
	t := e.one.t
	for k := range e.bx {
		e.bx[k] = e.gainAt(k)
	}
	e.solveFor(e.bx, e.goal, newPoint(e.n, e.r), e.two)
	// Slacks come from the first solution and prices from the second, each shifted into the cone by one constant.
	e.t = t
	s := newPoint(e.n, e.r)
	e.image(e.alloc, e.t, s)
	primal, dual := -shortOfBoundary, -shortOfBoundary
	shift := func(value, scale []float64, h func(i int) float64, scaled func(v, r float64) float64, worst *float64, out []float64) {
		for i, v := range value {
			out[i] = scaled(h(i)-v, scale[i])
			if out[i] <= 0 {
				*worst = max(*worst, -out[i])
			}
		}
	}
	over := func(v, r float64) float64 { return v / r }
	times := func(v, r float64) float64 { return -v * r }
	zero := func(int) float64 { return 0 }
	shift(s.x, scale.x, zero, over, &primal, e.x)
	shift(s.row, scale.row, func(int) float64 { return 1 }, over, &primal, e.row)
	shift(s.over, scale.over, func(i int) float64 { return -e.need[i].base }, over, &primal, e.over)
	shift(s.free, scale.free, func(i int) float64 { return e.workers[i] }, over, &primal, e.free)
	shift(e.two.zx, scale.x, zero, times, &dual, e.zx)
	shift(e.two.zrow, scale.row, zero, times, &dual, e.zrow)
	shift(e.two.zover, scale.over, zero, times, &dual, e.zover)
	shift(e.two.price, scale.free, zero, times, &dual, e.price)
	e.unscale(scale, shiftIntoTheCone+primal, shiftIntoTheCone+dual)
}

// unscale adds the shifts and removes the scaling.
func (e *homogeneousLP) unscale(scale *point, primal, dual float64) {
	apply := func(s, z, scale []float64) {
		for i, r := range scale {
			s[i] = (s[i] + primal) * r
			z[i] = (z[i] + dual) / r
		}
	}
	apply(e.x, e.zx, scale.x)
	apply(e.row, e.zrow, scale.row)
	apply(e.over, e.zover, scale.over)
	apply(e.free, e.price, scale.free)
	for i := range e.need {
		if e.need[i].none {
			e.over[i], e.zover[i] = 1, 0
		}
	}
}

func (p *program) gainAt(k int) float64 {
	if p.gain == nil {
		return 0
	}
	return p.gain[k]
}

// limits writes factor*h.
func (e *homogeneousLP) limits(h *point, factor float64) {
	clear(h.x)
	for i := range h.row {
		h.row[i] = factor
		h.over[i] = -factor * e.need[i].base
	}
	for j, w := range e.workers {
		h.free[j] = factor * w
	}
}

// image writes Gx into the slacks of out.
func (e *homogeneousLP) image(alloc []float64, t float64, out *point) {
	r := e.r
	clear(out.free)
	for i := range e.n {
		sum, rate := 0.0, 0.0
		for k := i * r; k < (i+1)*r; k++ {
			out.x[k] = -alloc[k]
			sum += alloc[k]
			rate += float64(e.rate[k] * alloc[k])
			out.free[k-i*r] += float64(e.mass[i] * alloc[k])
		}
		out.row[i] = sum
		if !e.need[i].none {
			out.over[i] = float64(e.d1[i]*t) - rate
		}
	}
}

// solveFor solves G'z = (bx, bt) and Gx - (s/z)z = bz for x and z, with the present factors.
func (e *homogeneousLP) solveFor(bx []float64, bt float64, bz, out *point) {
	r, w := e.r, e.r+2
	for j := range r {
		e.system[j*w+w-1] = -bz.free[j]
	}
	last := -bt
	if r == 3 {
		last = e.reduce3(bx, last, bz, out)
	} else {
		last = e.reduce(bx, last, bz, out)
	}
	if e.goal == 0 {
		last = 0
	}
	e.system[r*w+w-1] = last
	prices := e.eliminate()
	copy(out.price, prices[:r])
	out.t = prices[r]
	e.finish(bz, out)
}

// reduce is the first half of solveFor: X without the contributions of prices and t, and the system's right hand side.
func (e *homogeneousLP) reduce(bx []float64, last float64, bz, out *point) float64 {
	r, w := e.r, e.r+2
	for i := range e.n {
		drow, share := e.ratio.row[i]*bz.row[i], e.ratio.over[i]*bz.over[i]
		last -= float64(e.count[i] * e.d1[i] * share)
		rhs := e.rhs[i*r : (i+1)*r]
		for j := range rhs {
			k := i*r + j
			rhs[j] = bx[k] - float64(e.ratio.x[k]*bz.x[k]) + drow - float64(e.rate[k]*share)
			last += float64(e.count[i] * e.solved[k] * rhs[j])
		}
		for j := range rhs {
			k := i*r + j
			sum := inner(e.inverse[k*r:(k+1)*r], rhs)
			out.x[k] = sum
			e.system[j*w+w-1] += float64(e.mass[i] * sum)
		}
	}
	return last
}

// finish computes X and the prices of a solution from the types' prices and t.
func (e *homogeneousLP) finish(bz, out *point) {
	r := e.r
	if r == 3 {
		e.finish3(bz, out)
		return
	}
	for i := range e.n {
		sum, rate := 0.0, 0.0
		for j := range r {
			k := i*r + j
			x := out.x[k] - float64(e.solved[k]*out.t) - float64(e.scale[i]*inner(e.inverse[k*r:(k+1)*r], out.price))
			out.x[k] = x
			out.zx[k] = e.ratio.x[k] * (-x - bz.x[k])
			sum += x
			rate += float64(e.rate[k] * x)
		}
		out.zrow[i] = e.ratio.row[i] * (sum - bz.row[i])
		out.zover[i] = e.ratio.over[i] * (float64(e.d1[i]*out.t) - rate - bz.over[i])
	}
}

// refine solves and, near the optimum, where the blocks are ill-conditioned, solves again for the residual.
func (e *homogeneousLP) refine(bx []float64, bt float64, bz, out *point) {
	e.solveFor(bx, bt, bz, out)
	if e.gap > refinedBelow {
		return
	}
	worst := 0.0
	for i := range e.n {
		for k := i * e.r; k < (i+1)*e.r; k++ {
			e.left[k] = bx[k] + out.zx[k] - out.zrow[i] + float64(e.rate[k]*out.zover[i]) - float64(e.scale[i]*out.price[k-i*e.r])
			worst = max(worst, math.Abs(e.left[k]))
		}
		bt -= float64(e.count[i] * e.d1[i] * out.zover[i])
	}
	if max(worst, math.Abs(bt)) < goodEnough {
		return
	}
	e.solveFor(e.left, bt, e.nothing, e.more)
	add(out.x, e.more.x, 1)
	add(out.zx, e.more.zx, 1)
	add(out.zrow, e.more.zrow, 1)
	add(out.zover, e.more.zover, 1)
	add(out.price, e.more.price, 1)
	out.t += e.more.t
}
