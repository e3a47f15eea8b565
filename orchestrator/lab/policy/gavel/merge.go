package gavel

import (
	"math"
	"slices"
)

// merge combines jobs that the program cannot distinguish, with the same rates, need and scale, into one row. The
// solvers treat equal jobs alike at every step, so the path is the same and takes proportionally less work.
func (p *program) merge() *program {
	if p.n == 0 {
		return p
	}
	first, of := p.classes()
	if len(first) == p.n {
		return p
	}
	q := &program{n: len(first), r: p.r, workers: p.workers, goal: p.goal, from: p.from, of: of}
	q.count, q.mass = make([]float64, q.n), make([]float64, q.n)
	for _, i := range first {
		q.rate = append(q.rate, p.rate[i*p.r:(i+1)*p.r]...)
		if p.gain != nil {
			q.gain = append(q.gain, p.gain[i*p.r:(i+1)*p.r]...)
		}
		q.need = append(q.need, p.need[i])
		q.scale = append(q.scale, p.scale[i])
	}
	for _, row := range of {
		q.count[row]++
	}
	for row, c := range q.count {
		q.mass[row] = c * q.scale[row]
	}
	return q
}

// classes returns the first job of each kind, and the kind of each job.
func (p *program) classes() (first, of []int) {
	of = make([]int, p.n)
	seen := make(map[uint64][]int, p.n)
	for i := range p.n {
		key := p.hash(i)
		of[i] = -1
		for _, row := range seen[key] {
			if p.same(i, first[row]) {
				of[i] = row
				break
			}
		}
		if of[i] < 0 {
			of[i] = len(first)
			first = append(first, i)
			seen[key] = append(seen[key], of[i])
		}
	}
	return first, of
}

func (p *program) same(i, k int) bool {
	row := func(v []float64, i int) []float64 { return v[i*p.r : (i+1)*p.r] }
	return p.scale[i] == p.scale[k] && p.need[i] == p.need[k] && slices.Equal(row(p.rate, i), row(p.rate, k)) &&
		(p.gain == nil || slices.Equal(row(p.gain, i), row(p.gain, k)))
}

func (p *program) hash(i int) uint64 {
	h := math.Float64bits(p.scale[i])
	mix := func(v float64) {
		h = (h ^ math.Float64bits(v)) * 0x9e3779b97f4a7c15
		h ^= h >> 29
	}
	for _, rate := range p.rate[i*p.r : (i+1)*p.r] {
		mix(rate)
	}
	mix(p.need[i].base)
	mix(p.need[i].steps)
	mix(p.need[i].elapsed)
	return h
}

// each returns every job's row of X.
func (p *program) each(x []float64) []float64 {
	if p.of == nil {
		return x
	}
	all := make([]float64, 0, len(p.of)*p.r)
	for _, row := range p.of {
		all = append(all, x[row*p.r:(row+1)*p.r]...)
	}
	return all
}

// spread returns every job's entry of a list by row.
func (p *program) spread(held []bool) []bool {
	if p.of == nil {
		return held
	}
	all := make([]bool, len(p.of))
	for i, row := range p.of {
		all[i] = held[row]
	}
	return all
}
