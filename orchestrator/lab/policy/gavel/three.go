package gavel

// The innermost loops of the solvers, unrolled for three types of worker, the common case. Every sum is in the order of
// the loop that it replaces, so both give identical results.

// gather3 adds the contributions of job i's inverted block and its drag to the system.
func (s *newton) gather3(i int) {
	const w = 5
	inverse, drag := (*[9]float64)(s.inverse[9*i:]), (*[3]float64)(s.drag[3*i:])
	solved, system := (*[3]float64)(s.solved[3*i:]), (*[20]float64)(s.system)
	mass, count := s.mass[i], s.count[i]
	square := mass * s.scale[i]
	for j := range 3 {
		row := (*[3]float64)(inverse[3*j:])
		sum := float64(row[0]*drag[0]) + float64(row[1]*drag[1]) + float64(row[2]*drag[2])
		system[j*w] += float64(square * row[0])
		system[j*w+1] += float64(square * row[1])
		system[j*w+2] += float64(square * row[2])
		system[j*w+3] += float64(mass * sum)
		system[3*w+3] += float64(count * drag[j] * sum)
		solved[j] = sum
	}
}

// reduce3 is reduce for three types.
func (e *homogeneousLP) reduce3(bx []float64, last float64, bz, out *point) float64 {
	const w = 5
	s0, s1, s2 := e.system[w-1], e.system[2*w-1], e.system[3*w-1]
	for i := range e.n {
		ratio, limit := (*[3]float64)(e.ratio.x[3*i:]), (*[3]float64)(bz.x[3*i:])
		b, rate := (*[3]float64)(bx[3*i:]), (*[3]float64)(e.rate[3*i:])
		solved, x := (*[3]float64)(e.solved[3*i:]), (*[3]float64)(out.x[3*i:])
		m := (*[9]float64)(e.inverse[9*i:])
		drow, share := e.ratio.row[i]*bz.row[i], e.ratio.over[i]*bz.over[i]
		count, mass := e.count[i], e.mass[i]
		last -= float64(count * e.d1[i] * share)
		b0 := b[0] - float64(ratio[0]*limit[0]) + drow - float64(rate[0]*share)
		last += float64(count * solved[0] * b0)
		b1 := b[1] - float64(ratio[1]*limit[1]) + drow - float64(rate[1]*share)
		last += float64(count * solved[1] * b1)
		b2 := b[2] - float64(ratio[2]*limit[2]) + drow - float64(rate[2]*share)
		last += float64(count * solved[2] * b2)
		x[0] = float64(m[0]*b0) + float64(m[1]*b1) + float64(m[2]*b2)
		s0 += float64(mass * x[0])
		x[1] = float64(m[3]*b0) + float64(m[4]*b1) + float64(m[5]*b2)
		s1 += float64(mass * x[1])
		x[2] = float64(m[6]*b0) + float64(m[7]*b1) + float64(m[8]*b2)
		s2 += float64(mass * x[2])
	}
	e.system[w-1], e.system[2*w-1], e.system[3*w-1] = s0, s1, s2
	return last
}

// finish3 is finish for three types.
func (e *homogeneousLP) finish3(bz, out *point) {
	t, y := out.t, (*[3]float64)(out.price)
	for i := range e.n {
		x, zx := (*[3]float64)(out.x[3*i:]), (*[3]float64)(out.zx[3*i:])
		solved, m := (*[3]float64)(e.solved[3*i:]), (*[9]float64)(e.inverse[9*i:])
		ratio, limit := (*[3]float64)(e.ratio.x[3*i:]), (*[3]float64)(bz.x[3*i:])
		rate, scale := (*[3]float64)(e.rate[3*i:]), e.scale[i]
		x0 := x[0] - float64(solved[0]*t) - float64(scale*(float64(m[0]*y[0])+float64(m[1]*y[1])+float64(m[2]*y[2])))
		x1 := x[1] - float64(solved[1]*t) - float64(scale*(float64(m[3]*y[0])+float64(m[4]*y[1])+float64(m[5]*y[2])))
		x2 := x[2] - float64(solved[2]*t) - float64(scale*(float64(m[6]*y[0])+float64(m[7]*y[1])+float64(m[8]*y[2])))
		x[0], x[1], x[2] = x0, x1, x2
		zx[0], zx[1], zx[2] = ratio[0]*(-x0-limit[0]), ratio[1]*(-x1-limit[1]), ratio[2]*(-x2-limit[2])
		out.zrow[i] = e.ratio.row[i] * (x0 + x1 + x2 - bz.row[i])
		used := float64(rate[0]*x0) + float64(rate[1]*x1) + float64(rate[2]*x2)
		out.zover[i] = e.ratio.over[i] * (float64(e.d1[i]*t) - used - bz.over[i])
	}
}
