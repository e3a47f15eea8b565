package policy

import (
	"iter"
	"slices"
)

// Waiting lists the jobs that want devices: by app in order of submission, within it the longest waiting first.
func (v *View) Waiting() []*Job { return slices.Collect(v.Line()) }

// Line goes through the jobs that Waiting lists, one by one, for those who seldom need all of them.
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

// Jobs lists every job that holds devices or may have some: by app in order of submission, within it by number.
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
