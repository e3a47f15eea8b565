package policy

import (
	"iter"
	"slices"
)

// Waiting lists the waiting jobs: sweeps in order of submission, and within a sweep the job that has waited longest
// first.
func (v *View) Waiting() []*Job { return slices.Collect(v.Line()) }

// Line iterates over the jobs of Waiting, for callers that rarely need all of them.
func (v *View) Line() iter.Seq[*Job] {
	return func(yield func(*Job) bool) {
		var own []*Job
		for _, a := range v.Apps {
			own = own[:0]
			for _, j := range a.Jobs {
				if j.Waiting() {
					own = append(own, j)
				}
			}
			if len(own) > 1 {
				slices.SortStableFunc(own, func(a, b *Job) int { return a.Queued.Compare(b.Queued) })
			}
			for _, j := range own {
				if !yield(j) {
					return
				}
			}
		}
	}
}

// Jobs lists the running and waiting jobs: sweeps in order of submission, and within a sweep by trial number.
func (v *View) Jobs() []*Job {
	var all []*Job
	for _, a := range v.Apps {
		for _, j := range a.Jobs {
			if j.Running() || j.Waiting() {
				all = append(all, j)
			}
		}
	}
	return all
}
