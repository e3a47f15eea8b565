package policy

import "slices"

// StepsLeftOf returns StepsLeft of each job. A job of unknown length gets the median of the others, or 1 if no length
// is known.
func (v *View) StepsLeftOf(jobs []*Job) []float64 {
	left := make([]float64, len(jobs))
	var known []float64
	for i, j := range jobs {
		if left[i] = v.StepsLeft(j); max(j.TotalSteps, j.UntilStep) > 0 {
			known = append(known, left[i])
		} else {
			left[i] = -1
		}
	}
	if len(known) == len(jobs) {
		return left
	}
	median := 1.0
	if len(known) > 0 {
		slices.Sort(known)
		median = known[len(known)/2]
	}
	for i := range left {
		if left[i] < 0 {
			left[i] = median
		}
	}
	return left
}

// JobsHash returns a hash of the names of the view's jobs and nodes, which changes when a job or a node is added or
// removed.
func (v *View) JobsHash() uint64 {
	h := uint64(14695981039346656037) // FNV-1a
	mix := func(text string) {
		for i := range len(text) {
			h = (h ^ uint64(text[i])) * 1099511628211
		}
	}
	for _, a := range v.Apps {
		mix(a.ID)
		if a.Paused {
			mix(" paused")
		}
		for _, j := range a.Jobs {
			h = (h ^ uint64(j.Trial+1)) * 1099511628211
		}
	}
	for i := range v.Nodes {
		mix(v.Nodes[i].Name)
		if v.Nodes[i].Draining {
			mix(" draining")
		}
	}
	return h
}
