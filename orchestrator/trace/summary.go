package trace

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Quantiles are those of a distribution, by the nearest rank.
type Quantiles struct {
	Mean, Min, P10, P50, P90, P99, Max float64
}

// Summary describes the size of a workload.
type Summary struct {
	Jobs, GPUJobs, Apps, Tenants int
	// Span is the time in seconds from the first arrival to the last.
	Span float64
	// GPUHours is the sum over jobs with a known duration; Untimed counts the other GPU jobs.
	GPUHours float64
	Untimed  int
	// GPUs is the maximum number of GPUs of a GPU job, Duration that of timed jobs and Gap the time between arrivals,
	// both in seconds.
	GPUs, Duration, Gap Quantiles
}

// Summary returns the summary of the trace.
func (t *Trace) Summary() Summary {
	s := Summary{Jobs: len(t.Jobs), Apps: len(t.Apps)}
	tenants := make(map[string]bool)
	var gpus, durations, gaps []float64
	for i := range t.Jobs {
		job := &t.Jobs[i]
		tenants[job.Tenant] = true
		if i > 0 {
			gaps = append(gaps, job.Submit-t.Jobs[i-1].Submit)
		}
		if job.MaxGPUs > 0 {
			s.GPUJobs++
			gpus = append(gpus, float64(job.MaxGPUs)*job.Share)
			if job.Duration == 0 {
				s.Untimed++
			}
		}
		if job.Duration > 0 {
			durations = append(durations, job.Duration)
		}
		s.GPUHours += job.GPUSeconds() / 3600
	}
	if len(t.Jobs) > 0 {
		s.Span = t.Jobs[len(t.Jobs)-1].Submit - t.Jobs[0].Submit
	}
	delete(tenants, "")
	s.Tenants = len(tenants)
	s.GPUs, s.Duration, s.Gap = quantiles(gpus), quantiles(durations), quantiles(gaps)
	return s
}

func quantiles(values []float64) Quantiles {
	if len(values) == 0 {
		return Quantiles{}
	}
	slices.Sort(values)
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	rank := func(p float64) float64 {
		return values[max(0, int(math.Ceil(p*float64(len(values))))-1)]
	}
	return Quantiles{
		Mean: sum / float64(len(values)), Min: values[0], P10: rank(.1), P50: rank(.5), P90: rank(.9), P99: rank(.99),
		Max: values[len(values)-1],
	}
}

// String returns a small table.
func (s Summary) String() string {
	var out strings.Builder
	fmt.Fprintf(&out, "%d jobs (%d with GPUs), %d apps, %d tenants over %.1f days; %.0f GPU-hours",
		s.Jobs, s.GPUJobs, s.Apps, s.Tenants, s.Span/86400, s.GPUHours)
	if s.Untimed > 0 {
		fmt.Fprintf(&out, " (%d jobs have steps only)", s.Untimed)
	}
	fmt.Fprintf(&out, "\n%-12s %10s %10s %10s %10s %10s %10s\n", "", "mean", "p10", "p50", "p90", "p99", "max")
	for _, line := range []struct {
		name string
		q    Quantiles
	}{{"GPUs", s.GPUs}, {"duration s", s.Duration}, {"gap s", s.Gap}} {
		fmt.Fprintf(&out, "%-12s %10.1f %10.1f %10.1f %10.1f %10.1f %10.1f\n",
			line.name, line.q.Mean, line.q.P10, line.q.P50, line.q.P90, line.q.P99, line.q.Max)
	}
	return out.String()
}
