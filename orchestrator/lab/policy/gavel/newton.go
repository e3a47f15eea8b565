package gavel

import "math"

// factor inverts each job's block and builds the system of prices and t. With D = price/slack of each constraint, the
// block of job i is diag(Dx) + Drow 1 1' + Dover a a', a being its rates: positive definite. It returns false if
// rounding errors have destroyed that.
func (s *newton) factor() bool {
	r, w := s.r, s.r+2
	clear(s.system)
	s.slackT = s.curve
	for i := range s.n {
		a, inverse := s.rate[i*r:(i+1)*r], s.inverse[i*r*r:(i+1)*r*r]
		drow, dover := s.zrow[i]/s.row[i], 0.0
		if !s.need[i].none {
			dover = s.zover[i] / s.over[i]
		}
		s.ratio.row[i], s.ratio.over[i] = drow, dover
		for j := range r {
			for k := range j + 1 {
				inverse[j*r+k] = drow + float64(dover*a[j]*a[k])
			}
			ratio := s.zx[i*r+j] / s.x[i*r+j]
			s.ratio.x[i*r+j] = ratio
			inverse[j*r+j] += ratio
		}
		if !invert(inverse, s.chol, r) {
			return false
		}
		pull := -dover * s.d1[i]
		s.slackT += float64(s.count[i] * dover * s.d1[i] * s.d1[i])
		scale, mass := s.scale[i], s.mass[i]
		for j := range r {
			s.drag[i*r+j] = pull * a[j]
		}
		if r == 3 {
			s.gather3(i)
			continue
		}
		for j := range r {
			row := inverse[j*r : (j+1)*r]
			sum := inner(row, s.drag[i*r:(i+1)*r])
			for k, v := range row {
				s.system[j*w+k] += float64(mass * scale * v)
			}
			s.solved[i*r+j] = sum
			s.system[j*w+r] += float64(mass * sum)
			s.system[r*w+r] += float64(s.count[i] * s.drag[i*r+j] * sum)
		}
	}
	for j := range r {
		s.ratio.free[j] = s.price[j] / s.free[j]
		s.system[j*w+j] += s.free[j] / s.price[j]
		s.system[r*w+j] = s.system[j*w+r]
	}
	if s.goal == 0 {
		s.system[r*w+r] = -1
		return true
	}
	s.system[r*w+r] -= s.slackT
	return true
}

// inner returns the inner product of two vectors with one entry per type; three types is the common case.
func inner(a, b []float64) float64 {
	if len(a) == 3 && len(b) == 3 {
		return float64(a[0]*b[0]) + float64(a[1]*b[1]) + float64(a[2]*b[2])
	}
	sum := 0.0
	for i, v := range a {
		sum += float64(v * b[i])
	}
	return sum
}

// invert replaces the lower triangle of a positive definite r*r matrix by its whole inverse, by a Cholesky
// factorisation.
func invert(m, chol []float64, r int) bool {
	if r == 3 {
		return invert3((*[9]float64)(m))
	}
	for j := range r {
		for k := range j + 1 {
			sum := m[j*r+k]
			for l := range k {
				sum -= float64(chol[j*r+l] * chol[k*r+l])
			}
			if j != k {
				chol[j*r+k] = sum * chol[k*r+k]
				continue
			}
			if !(sum > 0) {
				return false
			}
			chol[j*r+j] = 1 / math.Sqrt(sum)
		}
	}
	// The inverse of the factor in place, then inverse' * inverse.
	for k := range r {
		for j := k + 1; j < r; j++ {
			sum := 0.0
			for l := k; l < j; l++ {
				sum -= float64(chol[j*r+l] * chol[l*r+k])
			}
			chol[j*r+k] = sum * chol[j*r+j]
		}
	}
	for j := range r {
		for k := range j + 1 {
			sum := 0.0
			for l := j; l < r; l++ {
				sum += float64(chol[l*r+j] * chol[l*r+k])
			}
			m[j*r+k], m[k*r+j] = sum, sum
		}
	}
	return true
}

// invert3 is invert for three types, unrolled.
func invert3(m *[9]float64) bool {
	l00 := m[0]
	if !(l00 > 0) {
		return false
	}
	l00 = 1 / math.Sqrt(l00)
	l10, l20 := m[3]*l00, m[6]*l00
	l11 := m[4] - float64(l10*l10)
	if !(l11 > 0) {
		return false
	}
	l11 = 1 / math.Sqrt(l11)
	l21 := (m[7] - float64(l20*l10)) * l11
	l22 := m[8] - float64(l20*l20) - float64(l21*l21)
	if !(l22 > 0) {
		return false
	}
	l22 = 1 / math.Sqrt(l22)
	// The inverse of the factor, then its transpose times itself.
	i10 := -l10 * l00 * l11
	i20 := -(float64(l20*l00) + float64(l21*i10)) * l22
	i21 := -l21 * l11 * l22
	m[0] = float64(l00*l00) + float64(i10*i10) + float64(i20*i20)
	m[1] = float64(i10*l11) + float64(i20*i21)
	m[2] = i20 * l22
	m[4] = float64(l11*l11) + float64(i21*i21)
	m[5] = i21 * l22
	m[8] = l22 * l22
	m[3], m[6], m[7] = m[1], m[2], m[5]
	return true
}

// predict aims for products of zero: the optimum at once.
func (s *newton) predict() {
	aim(s.target.x, s.x, s.zx)
	aim(s.target.row, s.row, s.zrow)
	aim(s.target.over, s.over, s.zover)
	aim(s.target.free, s.free, s.price)
}

func aim(target, slack, price []float64) {
	for i := range target {
		target[i] = -slack[i] * price[i]
	}
}

// correct aims for products of mu, less the second-order effect of the predictor.
func (s *newton) correct(mu float64, second bool) {
	weight := 0.0
	if second {
		weight = 1
	}
	adjust(s.target.x, s.step.x, s.step.zx, mu, weight)
	adjust(s.target.row, s.step.row, s.step.zrow, mu, weight)
	adjust(s.target.over, s.step.over, s.step.zover, mu, weight)
	adjust(s.target.free, s.step.free, s.step.price, mu, weight)
}

func adjust(target, slack, price []float64, mu, weight float64) {
	for i := range target {
		target[i] += mu - float64(weight*slack[i]*price[i])
	}
}

// direction solves for the step that reaches the targets to first order.
func (s *newton) direction() {
	r, w := s.r, s.r+2
	for j := range r {
		s.system[j*w+w-1] = s.target.free[j] / s.price[j]
	}
	// The residual of t and the contributions of the needs.
	rt := s.goal
	for i := range s.n {
		share := 0.0
		if !s.need[i].none {
			share = (s.target.over[i] - float64(s.zover[i]*s.lack[i])) / s.over[i]
			rt -= float64(s.count[i] * s.d1[i] * (s.zover[i] + share))
		}
		fixed := -s.target.row[i]/s.row[i] - s.zrow[i]
		share += s.zover[i]
		for j := range r {
			k := i*r + j
			b := fixed + float64(s.rate[k]*share) + s.zx[k] + s.target.x[k]/s.x[k] - float64(s.scale[i]*s.price[j])
			if s.gain != nil {
				b += s.gain[k]
			}
			s.rhs[k] = b
			rt -= float64(s.count[i] * s.solved[k] * b)
		}
		for j := range r {
			sum := inner(s.inverse[(i*r+j)*r:(i*r+j+1)*r], s.rhs[i*r:(i+1)*r])
			s.step.x[i*r+j] = sum
			s.system[j*w+w-1] += float64(s.mass[i] * sum)
		}
	}
	s.system[r*w+w-1] = -rt
	if s.goal == 0 {
		s.system[r*w+w-1] = 0
	}
	prices := s.eliminate()
	copy(s.step.price, prices[:r])
	s.step.t = prices[r]
	s.spread()
}

// spread computes the step of everything else from the step of prices and t.
func (s *newton) spread() {
	r := s.r
	clear(s.step.free)
	for i := range s.n {
		sum, rate := 0.0, 0.0
		for j := range r {
			k := i*r + j
			d := s.step.x[k] - float64(s.solved[k]*s.step.t) - float64(s.scale[i]*inner(s.inverse[k*r:(k+1)*r], s.step.price))
			s.step.x[k] = d
			s.step.zx[k] = (s.target.x[k] - float64(s.zx[k]*d)) / s.x[k]
			s.step.free[j] -= float64(s.mass[i] * d)
			sum += d
			rate += float64(s.rate[k] * d)
		}
		s.step.row[i] = -sum
		s.step.zrow[i] = (s.target.row[i] + float64(s.zrow[i]*sum)) / s.row[i]
		if s.need[i].none {
			continue
		}
		s.step.over[i] = rate - float64(s.d1[i]*s.step.t) + s.lack[i]
		s.step.zover[i] = (s.target.over[i] - float64(s.zover[i]*s.step.over[i])) / s.over[i]
	}
}

// eliminate solves the small system for the steps of the prices and of t.
func (s *newton) eliminate() []float64 { return eliminate(s.system, s.r+1) }

// eliminate solves a system, whose last column is the right hand side, with pivoting, and does not modify it.
func eliminate(system []float64, size int) []float64 {
	w := size + 1
	m := append([]float64(nil), system...)
	for c := range size {
		p := c
		for i := c + 1; i < size; i++ {
			if math.Abs(m[i*w+c]) > math.Abs(m[p*w+c]) {
				p = i
			}
		}
		for k := range w {
			m[c*w+k], m[p*w+k] = m[p*w+k], m[c*w+k]
		}
		for i := c + 1; i < size; i++ {
			f := m[i*w+c] / m[c*w+c]
			for k := c; k < w; k++ {
				m[i*w+k] -= float64(f * m[c*w+k])
			}
		}
	}
	answer := make([]float64, size)
	for c := size - 1; c >= 0; c-- {
		sum := m[c*w+w-1]
		for k := c + 1; k < size; k++ {
			sum -= float64(m[c*w+k] * answer[k])
		}
		answer[c] = sum / m[c*w+c]
	}
	return answer
}

// lengths returns how far the step may go before a slack or price falls below a hundredth of its value.
func (s *newton) lengths() (primal, dual float64) {
	p, d := s.point, s.step
	primal = min(reach(p.x, d.x), reach(p.row, d.row), reach(p.over, d.over), reach(p.free, d.free))
	dual = min(reach(p.zx, d.zx), reach(p.zrow, d.zrow), reach(p.zover, d.zover), reach(p.price, d.price))
	for i := range s.need {
		// Finish-time fairness: t*iso must stay above elapsed.
		if n := &s.need[i]; n.steps > 0 && s.step.t < 0 {
			left := s.t*n.iso - n.elapsed
			primal = min(primal, -0.9*left/(n.iso*s.step.t))
		}
	}
	return primal, dual
}

func reach(value, step []float64) float64 {
	worst := 0.99
	for i, d := range step {
		if d < 0 && float64(worst*-d) > 0.99*value[i] {
			worst = 0.99 * value[i] / -d
		}
	}
	return worst
}

func (s *newton) move(primal, dual float64) {
	p, d := s.point, s.step
	add(p.x, d.x, primal)
	add(p.row, d.row, primal)
	add(p.over, d.over, primal)
	add(p.free, d.free, primal)
	add(p.zx, d.zx, dual)
	add(p.zrow, d.zrow, dual)
	add(p.zover, d.zover, dual)
	add(p.price, d.price, dual)
	p.t += primal * d.t
}

func add(value, step []float64, length float64) {
	for i, d := range step {
		value[i] += float64(length * d)
	}
}
