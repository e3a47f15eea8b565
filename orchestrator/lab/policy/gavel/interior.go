package gavel

import "math"

// program is: maximise sum gain*X + goal*t over X and t, such that X is an allocation and, for every job with a need,
// rate_i . X_i >= need_i(t). Needs are convex in t, so the program is convex.
type program struct {
	n, r int
	// rate and gain have n*r entries, row by row; gain is nil for none.
	rate, gain []float64
	need       []need
	scale      []float64
	// count is the number of jobs that each row represents, and mass is count*scale. of maps jobs to rows; nil if it is
	// one to one.
	count, mass []float64
	of          []int
	workers     []float64
	// goal is +1 to maximise t, -1 to minimise it, 0 without t.
	goal float64
	// from is the initial t, such that small rates meet the needs if that is possible.
	from float64
}

// need is slope*t + base + steps/(t*iso - elapsed): linear for max-min fairness and makespan, hyperbolic for
// finish-time fairness, where t is rho and the job must end within rho times its isolated time.
type need struct {
	slope, base         float64
	steps, iso, elapsed float64
	none                bool
}

// at returns the need at t and its first and second derivatives.
func (d need) at(t float64) (value, first, second float64) {
	value, first = float64(d.slope*t)+d.base, d.slope
	if d.steps > 0 {
		left := float64(t*d.iso) - d.elapsed
		h := d.steps / left
		slope := d.iso / left
		value += h
		first -= h * slope
		second = 2 * h * slope * slope
	}
	return value, first, second
}

// point is a primal and dual point. Slacks are stored separately from the variables so that small ones keep their
// precision.
type point struct {
	x, zx []float64 // allocation >= 0
	row   []float64 // 1 - sum_j x
	zrow  []float64
	over  []float64 // rate.x - need(t)
	zover []float64
	free  []float64 // workers - sum scale*x
	price []float64
	t     float64
}

func newPoint(n, r int) *point {
	flat := make([]float64, 2*n*r+4*n+2*r)
	cut := func(size int) []float64 {
		part := flat[:size:size]
		flat = flat[size:]
		return part
	}
	return &point{
		x: cut(n * r), zx: cut(n * r), row: cut(n), zrow: cut(n), over: cut(n), zover: cut(n), free: cut(r), price: cut(r),
	}
}

// newton is a point, a direction and the factors of the system that links them.
type newton struct {
	*program
	*point
	// step is the direction; target is the aim for the complementarity products minus their present values.
	step, target *point
	// ratio is price over slack of every constraint, stored in its slacks, at the last factorisation.
	ratio *point
	// inverse holds each job's inverted r*r block; drag is the block's coupling to t and solved its image.
	inverse, drag, solved, rhs []float64
	// d1, lack: need's derivative and the residual of "over".
	d1, lack []float64
	// weight is the number of logarithms of "over" in the barrier.
	weight []float64
	curve  float64 // sum of zover * need''
	slackT float64 // sum of zover/over * need'^2 + curve
	system []float64
	chol   []float64
}

// maxSteps is far more than any observed program needed; the gap bounds the error even if a program does not converge.
const maxSteps = 100

// patience is the number of steps without a better gap after which the search ends if the gap is Acceptable: the last
// digits are then rounding.
const patience = 3

// hopelessGap is a gap, relative to t, above which it is not worth computing.
const hopelessGap = 1e-3

// hopeless is the number of such steps that end the search in any case.
const hopeless = 20

// solve follows the central path of a program whose needs are curved until gap is small enough. The centre is that of
// Gavel's form of such a program, which splits each need in two, with a t_i for 1/rate_i in between: the two logarithms
// of its barrier add up, at the best t_i, to those of need.weight.
func (p *program) solve(gap func(*point) float64) (*point, int) {
	s := p.start()
	best, bestGap, stale := newPoint(p.n, p.r), math.Inf(1), 0
	steps := 0
	for ; steps < maxSteps; steps++ {
		s.residuals()
		mu := s.mu()
		// While products are large so is the gap, which is expensive to compute.
		if mu*s.degree() > hopelessGap*math.Abs(s.t) && steps < maxSteps-1 {
			stale = 0
		} else if g := gap(s.point); g < bestGap {
			best.copy(s.point)
			bestGap, stale = g, 0
		} else if stale++; stale > patience && bestGap < Acceptable {
			break
		}
		if bestGap <= Tolerance || math.IsNaN(mu) || !s.factor() {
			break
		}
		sigma, astray := 1.0, s.spreadOut() > 10
		s.predict()
		if !astray {
			s.direction()
			primal, dual := s.lengths()
			ahead := s.muAfter(primal, dual) / mu
			sigma = max(ahead*ahead*ahead, 1e-6)
		}
		s.correct(sigma*mu, !astray)
		for i, w := range s.weight {
			s.target.over[i] += (w - 1) * sigma * mu
		}
		s.direction()
		primal, dual := s.lengths()
		length := min(primal, dual)
		s.move(length, length)
	}
	return best, steps
}

func (p *program) newton() *newton {
	n, r := p.n, p.r
	return &newton{
		program: p, point: newPoint(n, r), step: newPoint(n, r), target: newPoint(n, r), ratio: newPoint(n, r),
		inverse: make([]float64, n*r*r), drag: make([]float64, n*r), solved: make([]float64, n*r), rhs: make([]float64, n*r),
		d1: make([]float64, n), lack: make([]float64, n), weight: make([]float64, n),
		system: make([]float64, (r+1)*(r+2)), chol: make([]float64, r*r),
	}
}

// start is inside every constraint, with equal products of slack and price.
func (p *program) start() *newton {
	n, r := p.n, p.r
	s := p.newton()
	p.interior(s.x)
	copy(s.free, p.workers)
	s.t = p.from
	slope := 0.0
	for i := range n {
		rate := 0.0
		s.row[i] = 1
		for j := range r {
			k := i*r + j
			s.row[i] -= s.x[k]
			s.free[j] -= float64(p.mass[i] * s.x[k])
			rate += float64(p.rate[k] * s.x[k])
		}
		if p.need[i].none {
			continue
		}
		d, d1, _ := p.need[i].at(s.t)
		s.over[i] = max(rate-d, 0.1*rate)
		slope += p.count[i] * math.Abs(d1) / s.over[i]
	}
	s.setPrices(1 / slope)
	return s
}

// interior writes a small allocation within all constraints.
func (p *program) interior(x []float64) {
	scale := 0.0
	for _, m := range p.mass {
		scale += m
	}
	for j := range p.r {
		share := 0.5 * min(1/float64(p.r), p.workers[j]/scale)
		for i := range p.n {
			x[i*p.r+j] = share
		}
	}
}

func (s *newton) setPrices(mu float64) {
	for k, x := range s.x {
		s.zx[k] = mu / x
	}
	for i := range s.n {
		s.zrow[i] = mu / s.row[i]
		if !s.need[i].none {
			s.zover[i] = mu / s.over[i]
		}
	}
	for j, f := range s.free {
		s.price[j] = mu / f
	}
}

// residuals recomputes everything that depends on t, and the residual of "over".
func (s *newton) residuals() {
	s.curve = 0
	for i := range s.n {
		if s.need[i].none {
			continue
		}
		d, d1, d2 := s.need[i].at(s.t)
		rate := 0.0
		for k := i * s.r; k < (i+1)*s.r; k++ {
			rate += float64(s.rate[k] * s.x[k])
		}
		s.lack[i] = rate - d - s.over[i]
		s.weight[i] = 1.5 - s.over[i]/(s.over[i]+d)
		if s.goal != 0 {
			s.d1[i] = d1
			s.curve += float64(s.count[i] * s.zover[i] * d2)
		}
	}
}

func (p *point) copy(from *point) {
	copy(p.x, from.x)
	copy(p.zx, from.zx)
	copy(p.row, from.row)
	copy(p.zrow, from.zrow)
	copy(p.over, from.over)
	copy(p.zover, from.zover)
	copy(p.free, from.free)
	copy(p.price, from.price)
	p.t = from.t
}

// mu returns the mean product of slack and price.
func (s *newton) mu() float64 { return s.muAfter(0, 0) }

// muAfter returns mu after steps of these lengths.
func (s *newton) muAfter(primal, dual float64) float64 {
	return s.products(s.step, primal, dual) / s.degree()
}

// products returns the sum of all products of slack and price after a step.
func (s *newton) products(step *point, primal, dual float64) float64 {
	sum, r := 0.0, s.r
	for i, c := range s.count {
		part := (s.row[i] + primal*step.row[i]) * (s.zrow[i] + dual*step.zrow[i])
		part += float64((s.over[i] + primal*step.over[i]) * (s.zover[i] + dual*step.zover[i]))
		for k := i * r; k < (i+1)*r; k++ {
			part += float64((s.x[k] + primal*step.x[k]) * (s.zx[k] + dual*step.zx[k]))
		}
		sum += float64(c * part)
	}
	for j := range r {
		sum += float64((s.free[j] + primal*step.free[j]) * (s.price[j] + dual*step.price[j]))
	}
	return sum
}

// degree returns the number of products.
func (s *newton) degree() float64 {
	degree := float64(s.r)
	for i, c := range s.count {
		degree += c * float64(s.r+1)
		if !s.need[i].none {
			degree += c
		}
	}
	return degree
}

// spreadOut returns the ratio of the largest to the smallest product, as weighted in the barrier.
func (s *newton) spreadOut() float64 {
	least, most := math.Inf(1), 0.0
	note := func(v float64) { least, most = min(least, v), max(most, v) }
	for k, x := range s.x {
		note(x * s.zx[k])
	}
	for i, row := range s.row {
		note(row * s.zrow[i])
		if !s.need[i].none {
			note(s.over[i] * s.zover[i] / s.weight[i])
		}
	}
	for j, f := range s.free {
		note(f * s.price[j])
	}
	return most / least
}
