package gavel

import (
	"cmp"
	"slices"
)

// FIFO assigns whole types to jobs in order of arrival (section 4.2): each job spends all its time on one type, while
// there are workers. Its fields are its snapshot.
type FIFO struct {
	// Perf chooses each job's fastest type with room, again at every decision. Without it jobs keep their type, and the
	// rules are those of Gavel's code, which differ from the paper: a job gets the last type by name that has any
	// worker left and on which it runs, whether it fits or not, and a type that is used up is removed at random among
	// those with room. This is needed to reproduce its published runs.
	Perf bool `json:"perf"`
	// Types by job.
	Types map[int]int `json:"types,omitempty"`
}

// Request is a job for FIFO.
type Request struct {
	Job, Scale int
	Throughput []float64
}

// Allocate returns a row for each request. Types must be sorted by name, requests by arrival. draw returns a random
// number below n; Perf does not use it.
func (f *FIFO) Allocate(requests []Request, workers []int, draw func(n int) int) [][]float64 {
	if f.Perf || f.Types == nil {
		f.Types = map[int]int{}
	}
	left := slices.Clone(workers)
	var queue []Request
	active := map[int]Request{}
	for _, q := range requests {
		active[q.Job] = q
		if _, has := f.Types[q.Job]; !has {
			queue = append(queue, q)
		}
	}
	queue = f.replace(queue, active, left)
	f.fill(queue, left, draw)
	x := make([][]float64, len(requests))
	for i, q := range requests {
		x[i] = make([]float64, len(workers))
		if t, has := f.Types[q.Job]; has {
			x[i][t] = 1
		}
	}
	return x
}

// Retype converts Types to another list of types. A job whose type is gone gets another.
func (f *FIFO) Retype(from, to []string) {
	moved := make(map[int]int, len(f.Types))
	for job, t := range f.Types {
		if i := slices.Index(to, from[t]); i >= 0 {
			moved[job] = i
		}
	}
	if f.Types != nil {
		f.Types = moved
	}
}

// replace puts the head of the queue where a job ended.
func (f *FIFO) replace(queue []Request, active map[int]Request, left []int) []Request {
	had := make([]int, 0, len(f.Types))
	for job := range f.Types {
		had = append(had, job)
	}
	slices.Sort(had)
	for _, job := range had {
		t := f.Types[job]
		if q, runs := active[job]; runs {
			left[t] -= q.Scale
			continue
		}
		delete(f.Types, job)
		if len(queue) > 0 && queue[0].Scale <= left[t] && queue[0].Throughput[t] > 0 {
			f.Types[queue[0].Job] = t
			left[t] -= queue[0].Scale
			queue = queue[1:]
		}
	}
	return queue
}

func (f *FIFO) fill(queue []Request, left []int, draw func(n int) int) {
	var open []int
	for t, n := range left {
		if n > 0 {
			open = append(open, t)
		}
	}
	for _, q := range queue {
		roomy := slices.DeleteFunc(slices.Clone(open), func(t int) bool { return left[t] < q.Scale })
		if len(roomy) == 0 {
			return
		}
		t, strike := open[len(open)-1], 0
		for i := len(open) - 1; i >= 0 && q.Throughput[t] <= 0; i-- {
			t = open[i]
		}
		if f.Perf {
			t = slices.MaxFunc(roomy, func(a, b int) int { return cmp.Compare(q.Throughput[a], q.Throughput[b]) })
			strike = t
		} else {
			strike = roomy[draw(len(roomy))]
		}
		if q.Throughput[t] <= 0 {
			continue
		}
		f.Types[q.Job] = t
		if left[t] -= q.Scale; left[t] == 0 {
			open = slices.DeleteFunc(open, func(o int) bool { return o == strike })
		}
	}
}
