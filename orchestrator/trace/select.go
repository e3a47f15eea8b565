package trace

import (
	"fmt"
	"math"
	"slices"
)

// With returns the trace with other jobs, and only the apps and tenants that these name.
func (t *Trace) With(jobs []Job) *Trace {
	out := *t
	out.Jobs, out.Apps, out.Tenants = jobs, nil, nil
	apps, tenants := make(map[string]bool), make(map[string]bool)
	for i := range jobs {
		apps[jobs[i].App], tenants[jobs[i].Tenant] = true, true
	}
	for _, a := range t.Apps {
		if apps[a.ID] {
			out.Apps = append(out.Apps, a)
		}
	}
	for _, tenant := range t.Tenants {
		if tenants[tenant.Name] {
			out.Tenants = append(out.Tenants, tenant)
		}
	}
	return &out
}

// Filter returns the trace with the jobs that keep accepts.
func (t *Trace) Filter(keep func(*Job) bool) *Trace {
	var jobs []Job
	for i := range t.Jobs {
		if keep(&t.Jobs[i]) {
			jobs = append(jobs, t.Jobs[i])
		}
	}
	return t.With(jobs)
}

// Window returns the jobs that arrive in [from, to), in seconds, with arrivals relative to from.
func (t *Trace) Window(from, to float64) *Trace {
	out := t.Filter(func(j *Job) bool { return j.Submit >= from && j.Submit < to })
	for i := range out.Jobs {
		out.Jobs[i].Submit -= from
	}
	return out
}

// Busiest returns the start of the window of this many seconds with the most arrivals.
func (t *Trace) Busiest(seconds float64) float64 {
	best, at, first := 0, 0.0, 0
	for last := range t.Jobs {
		for t.Jobs[last].Submit-t.Jobs[first].Submit >= seconds {
			first++
		}
		if n := last - first + 1; n > best {
			best, at = n, t.Jobs[first].Submit
		}
	}
	return at
}

// Head returns the first n jobs.
func (t *Trace) Head(n int) *Trace {
	return t.With(slices.Clone(t.Jobs[:max(0, min(n, len(t.Jobs)))]))
}

// OfTenants returns the jobs of these tenants.
func (t *Trace) OfTenants(names ...string) *Trace {
	return t.Filter(func(j *Job) bool { return slices.Contains(names, j.Tenant) })
}

// GPUJobs returns the jobs that have GPUs and work.
func (t *Trace) GPUJobs() *Trace {
	return t.Filter(func(j *Job) bool { return j.MaxGPUs > 0 && (j.Duration > 0 || j.TotalSteps > 0) })
}

// Scale returns the trace with arrivals load times as dense, and with the durations, steps and app settings multiplied
// by length. Both must be above 0.
func (t *Trace) Scale(load, length float64) (*Trace, error) {
	if !Finite(load, length) || load <= 0 || length <= 0 {
		return nil, fmt.Errorf("scale by load %g and length %g: want both above 0", load, length)
	}
	out := t.With(slices.Clone(t.Jobs))
	for i := range out.Jobs {
		job := &out.Jobs[i]
		job.Submit /= load
		job.Duration *= length
		job.TotalSteps = scaleSteps(job.TotalSteps, length)
	}
	for i := range out.Apps {
		out.Apps[i].MinSteps = scaleSteps(out.Apps[i].MinSteps, length)
		out.Apps[i].MaxSteps = scaleSteps(out.Apps[i].MaxSteps, length)
	}
	return out, nil
}

// scaleSteps scales steps, to at least 1 if they were not 0.
func scaleSteps(steps int64, by float64) int64 {
	if steps == 0 {
		return 0
	}
	return max(1, int64(math.Min(math.Round(float64(steps)*by), maxSteps)))
}
