package gavel

import "math"

// costs returns c'x and h'z of a point's X, t and prices.
func (e *homogeneousLP) costs(x []float64, t float64, z *point) (cx, hz float64) {
	cx = -float64(e.goal * t)
	if e.gain != nil {
		for k, g := range e.gain {
			cx -= float64(e.count[k/e.r] * g * x[k])
		}
	}
	for i, price := range z.zrow {
		hz += float64(e.count[i] * (price - float64(z.zover[i]*e.need[i].base)))
	}
	for j, y := range z.price {
		hz += float64(e.workers[j] * y)
	}
	return cx, hz
}

// measure computes the residuals.
func (e *homogeneousLP) measure() {
	r := e.r
	e.image(e.alloc, e.t, e.rz)
	e.rt = e.goal * e.tau
	for i := range e.n {
		for j := range r {
			k := i*r + j
			e.rx[k] = e.zx[k] - e.zrow[i] + float64(e.rate[k]*e.zover[i]) - float64(e.scale[i]*e.price[j]) + float64(e.gainAt(k)*e.tau)
		}
		if !e.need[i].none {
			e.rt -= float64(e.count[i] * e.d1[i] * e.zover[i])
			e.rz.over[i] += e.over[i] + float64(e.tau*e.need[i].base)
		}
		e.rz.row[i] += e.row[i] - e.tau
	}
	if e.goal == 0 {
		e.rt = 0
	}
	for k := range e.rz.x {
		e.rz.x[k] += e.x[k]
	}
	for j, w := range e.workers {
		e.rz.free[j] += e.free[j] - float64(e.tau*w)
	}
	cx, hz := e.costs(e.alloc, e.t, e.point)
	e.gap = math.Abs(cx+hz) / e.tau / max(1e-300, min(math.Abs(cx), math.Abs(hz))/e.tau)
	if cx == 0 {
		e.gap = math.Abs(hz) / e.tau
	}
}

// converged is ECOS's stopping rule.
func (e *homogeneousLP) converged() bool {
	product := e.products(e.step, 0, 0)
	if product >= objectiveWithin && e.gap >= objectiveWithin {
		return false
	}
	squares := func(v []float64, each int) float64 {
		sum := 0.0
		for i := 0; i < len(v); i += each {
			part := 0.0
			for _, x := range v[i : i+each] {
				part += float64(x * x)
			}
			sum += float64(e.count[i/each] * part)
		}
		return sum
	}
	// norm takes entries for each row's types, two per row, and one for each type.
	norm := func(x, row, over, free []float64) float64 {
		sum := squares(x, e.r) + squares(row, 1) + squares(over, 1)
		for _, v := range free {
			sum += float64(v * v)
		}
		return math.Sqrt(sum)
	}
	e.limits(e.bz, 1)
	h := norm(nil, e.bz.row, e.bz.over, e.bz.free)
	nx := norm(e.alloc, nil, nil, []float64{e.t})
	ns := norm(e.x, e.row, e.over, e.free)
	nz := norm(e.zx, e.zrow, e.zover, e.price)
	primal := norm(e.rz.x, e.rz.row, e.rz.over, e.rz.free) / max(max(1, h)+nx+ns, 1) / e.tau
	dual := norm(e.rx, nil, nil, []float64{e.rt}) / max(max(1, norm(e.gain, nil, nil, []float64{e.goal}))+nz, 1) / e.tau
	return primal < feasibleWithin && dual < feasibleWithin
}

// advance makes one step, and returns false if the system can no longer be solved.
func (e *homogeneousLP) advance() bool {
	if !e.factor() {
		return false
	}
	mu := (e.products(e.step, 0, 0) + e.tau*e.kappa) / (e.degree() + 1)
	for k := range e.bx {
		e.bx[k] = e.gainAt(k)
	}
	e.limits(e.bz, 1)
	e.refine(e.bx, e.goal, e.bz, e.one)
	c1, h1 := e.costs(e.one.x, e.one.t, e.one)
	cx, hz := e.costs(e.alloc, e.t, e.point)
	rtau := e.kappa + cx + hz
	denominator := e.kappa/e.tau - c1 - h1

	// Affine: aim for products of zero. Targets are stored divided by their prices, which leaves the slacks.
	turn := func(target, s []float64) {
		for i, v := range s {
			target[i] = -v
		}
	}
	turn(e.target.x, e.x)
	turn(e.target.row, e.row)
	turn(e.target.over, e.over)
	turn(e.target.free, e.free)
	dtau := e.towards(1, rtau-e.kappa, denominator)
	dkappa := -e.kappa - e.kappa/e.tau*dtau
	alpha := e.length(dtau, dkappa)
	sigma := min(max(math.Pow(1-alpha, 3), leastCentring), 1)

	// Combined: towards the central path, with the second order of the affine step.
	bkappa := e.kappa*e.tau + dkappa*dtau - sigma*mu
	bend := func(target, ds, dz, z []float64) {
		for i := range target {
			target[i] += (sigma*mu - float64(ds[i]*dz[i])) / z[i]
		}
	}
	bend(e.target.x, e.step.x, e.step.zx, e.zx)
	bend(e.target.row, e.step.row, e.step.zrow, e.zrow)
	bend(e.target.free, e.step.free, e.step.price, e.price)
	for i := range e.need {
		if !e.need[i].none {
			e.target.over[i] += (sigma*mu - float64(e.step.over[i]*e.step.zover[i])) / e.zover[i]
		}
	}
	dtau = e.towards(1-sigma, (1-sigma)*rtau-bkappa/e.tau, denominator)
	dkappa = -(bkappa + e.kappa*dtau) / e.tau
	alpha = shortOfBoundary * e.length(dtau, dkappa)
	if !(alpha > 0) || math.IsNaN(dtau) {
		return false
	}
	e.move(alpha, alpha)
	add(e.alloc, e.two.x, alpha)
	e.tau += alpha * dtau
	e.kappa += alpha * dkappa
	return true
}

// towards computes the step that removes the given part of the residuals and moves products to their targets: e.step
// holds the part of slacks, prices and t, and e.two.x that of the allocation.
func (e *homogeneousLP) towards(part, tau, denominator float64) (dtau float64) {
	for k, v := range e.rx {
		e.bx[k] = part * v
	}
	aside := func(b, rz, target []float64) {
		for i, t := range target {
			b[i] = float64(-part*rz[i]) - t
		}
	}
	aside(e.bz.x, e.rz.x, e.target.x)
	aside(e.bz.row, e.rz.row, e.target.row)
	aside(e.bz.over, e.rz.over, e.target.over)
	aside(e.bz.free, e.rz.free, e.target.free)
	e.refine(e.bx, part*e.rt, e.bz, e.two)
	c2, h2 := e.costs(e.two.x, e.two.t, e.two)
	dtau = (tau + c2 + h2) / denominator
	combine := func(ds, dz, two, one, target, ratio []float64) {
		for i, t := range target {
			d := two[i] + float64(dtau*one[i])
			dz[i] = d
			ds[i] = t - d/ratio[i]
		}
	}
	combine(e.step.x, e.step.zx, e.two.zx, e.one.zx, e.target.x, e.ratio.x)
	combine(e.step.row, e.step.zrow, e.two.zrow, e.one.zrow, e.target.row, e.ratio.row)
	combine(e.step.over, e.step.zover, e.two.zover, e.one.zover, e.target.over, e.ratio.over)
	combine(e.step.free, e.step.price, e.two.price, e.one.price, e.target.free, e.ratio.free)
	for i := range e.need {
		if e.need[i].none {
			e.step.over[i], e.step.zover[i] = 0, 0
		}
	}
	for k := range e.two.x {
		e.two.x[k] += float64(dtau * e.one.x[k])
	}
	e.step.t = e.two.t + float64(dtau*e.one.t)
	return dtau
}

// length returns the longest step that keeps everything positive.
func (e *homogeneousLP) length(dtau, dkappa float64) float64 {
	longest := longestStep
	for _, pair := range [][2][]float64{
		{e.x, e.step.x},
		{e.row, e.step.row},
		{e.over, e.step.over},
		{e.free, e.step.free},
		{e.zx, e.step.zx},
		{e.zrow, e.step.zrow},
		{e.zover, e.step.zover},
		{e.price, e.step.price},
		{{e.tau, e.kappa}, {dtau, dkappa}},
	} {
		value := pair[0]
		for i, d := range pair[1] {
			if d < 0 && float64(longest*-d) > value[i] {
				longest = value[i] / -d
			}
		}
	}
	return longest
}

// answer writes the point that the embedding represents, with X within all constraints, clipped like Gavel's.
func (e *homogeneousLP) answer(to *point) {
	to.copy(e.point)
	r := e.r
	used := make([]float64, r)
	for i := range e.n {
		sum := 0.0
		for k := i * r; k < (i+1)*r; k++ {
			to.x[k] = min(max(e.alloc[k]/e.tau, 0), 1)
			sum += to.x[k]
		}
		for k := i * r; k < (i+1)*r; k++ {
			to.x[k] /= max(1, sum)
			used[k-i*r] += float64(e.mass[i] * to.x[k])
		}
	}
	for k := range to.x {
		if u := used[k%r]; u > e.workers[k%r] {
			to.x[k] *= e.workers[k%r] / u
		}
	}
	to.t /= e.tau
	for _, v := range [][]float64{to.row, to.over, to.free, to.zx, to.zrow, to.zover, to.price} {
		for i := range v {
			v[i] /= e.tau
		}
	}
}

// equilibrate is Ruiz's scaling: three times, rows and columns of G are divided by the root of their largest entry. It
// returns the rows' scales; the columns' cancel in the starting point's slacks and prices.
func (e *homogeneousLP) equilibrate() *point {
	rows, cols := newPoint(e.n, e.r), newPoint(e.n, e.r)
	for _, v := range [][]float64{rows.x, rows.row, rows.over, rows.free, cols.x} {
		for i := range v {
			v[i] = 1
		}
	}
	cols.t = 1
	root := func(x float64) float64 {
		if x < scaledBelow {
			return 1
		}
		return math.Sqrt(x)
	}
	for range roundsOfScaling {
		top, right, t := newPoint(e.n, e.r), make([]float64, e.n*e.r), 0.0
		for i := range e.n {
			for j := range e.r {
				k := i*e.r + j
				entry := func(row *float64, g float64, scale float64) {
					g = math.Abs(g) / scale / cols.x[k]
					*row = max(*row, g)
					right[k] = max(right[k], g)
				}
				entry(&top.x[k], 1, rows.x[k])
				entry(&top.row[i], 1, rows.row[i])
				entry(&top.free[j], e.scale[i], rows.free[j])
				if !e.need[i].none {
					entry(&top.over[i], e.rate[k], rows.over[i])
				}
			}
			if !e.need[i].none {
				g := math.Abs(e.d1[i]) / rows.over[i] / cols.t
				top.over[i] = max(top.over[i], g)
				t = max(t, g)
			}
		}
		for k, v := range right {
			cols.x[k] *= root(v)
			rows.x[k] *= root(top.x[k])
		}
		cols.t *= root(t)
		for i := range e.n {
			rows.row[i] *= root(top.row[i])
			rows.over[i] *= root(top.over[i])
		}
		for j := range e.r {
			rows.free[j] *= root(top.free[j])
		}
	}
	return rows
}
