// Package workload selects the jobs of a simulation: a trace from a file or a generator, restricted to a part. It reads
// only files; the same request gives the same trace.
package workload

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/trace"
)

// Request selects a workload. Zero values of fields have no effect.
type Request struct {
	// File is a trace in any format that package trace knows.
	File string
	// Generate generates the trace, or is nil. base is the trace of File, or nil.
	Generate func(r Request, base *trace.Trace) (*trace.Trace, error)
	// Seed is the seed of everything random.
	Seed uint64
	// Lenient skips broken rows.
	Lenient bool
	// JobTable is the job table for Alibaba's pai_task_table.
	JobTable string
	// Throughputs convert run times into steps.
	Throughputs *trace.Throughputs

	// Window is FROM:TO, or busiest:LENGTH: only jobs that arrive in that time are selected.
	Window string
	// Tenants restricts the jobs to those of these tenants.
	Tenants []string
	// Load multiplies the density of arrivals, and Length the length of jobs.
	Load, Length float64
	// Jobs restricts the jobs to this many of the first ones.
	Jobs int
}

// ErrNothing means that no file was named.
var ErrNothing = errors.New("there is no workload: give --trace FILE")

// Trace generates or reads the trace and restricts it: first to the window, then by tenants, load and number. Jobs without
// GPUs are skipped.
func (r Request) Trace() (*trace.Trace, error) {
	t, err := r.source()
	if err != nil {
		return nil, err
	}
	all := len(t.Jobs)
	t = t.GPUJobs()
	if t, err = r.window(t); err != nil {
		return nil, err
	}
	if len(r.Tenants) > 0 {
		if t, err = r.tenants(t); err != nil {
			return nil, err
		}
	}
	if r.Load != 0 || r.Length != 0 {
		if t, err = t.Scale(orOne(r.Load), orOne(r.Length)); err != nil {
			return nil, err
		}
	}
	if r.Jobs < 0 {
		return nil, fmt.Errorf("--jobs %d: want 1 or more", r.Jobs)
	}
	if r.Jobs > 0 {
		t = t.Head(r.Jobs)
	}
	if len(t.Jobs) == 0 {
		return nil, fmt.Errorf("none of the %d jobs of %s is left to run", all, t.Name)
	}
	return t, nil
}

func orOne(v float64) float64 {
	if v == 0 {
		return 1
	}
	return v
}

// source returns the whole trace.
func (r Request) source() (*trace.Trace, error) {
	var base *trace.Trace
	if r.File != "" {
		var err error
		if base, err = trace.Open(r.File, trace.Options{Lenient: r.Lenient, JobTable: r.JobTable}); err != nil {
			return nil, err
		}
	}
	switch {
	case r.Generate != nil:
		return r.Generate(r, base)
	case base == nil:
		return nil, ErrNothing
	}
	return base, nil
}

// window restricts the trace to the jobs that arrive in a time.
func (r Request) window(t *trace.Trace) (*trace.Trace, error) {
	if r.Window == "" {
		return t, nil
	}
	bad := fmt.Errorf("--window %s: want FROM:TO or busiest:LENGTH, such as 24h:48h or busiest:14d", r.Window)
	from, to, ok := strings.Cut(r.Window, ":")
	if !ok {
		return nil, bad
	}
	end, err := seconds(to)
	if err != nil {
		return nil, bad
	}
	if from == "busiest" {
		if end <= 0 {
			return nil, bad
		}
		start := t.Busiest(end)
		return t.Window(start, start+end), nil
	}
	start, err := seconds(from)
	if err != nil || start >= end {
		return nil, bad
	}
	return t.Window(start, end), nil
}

// seconds parses a duration; d stands for days.
func seconds(text string) (float64, error) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		v, err := strconv.ParseFloat(days, 64)
		if err != nil || !(v >= 0) || math.IsInf(v, 0) {
			return 0, fmt.Errorf("%q is not a number of days", text)
		}
		return v * 86400, nil
	}
	d, err := time.ParseDuration(text)
	if err == nil && d < 0 {
		err = fmt.Errorf("%q is below 0", text)
	}
	return d.Seconds(), err
}

func (r Request) tenants(t *trace.Trace) (*trace.Trace, error) {
	var have []string
	for i := range t.Jobs {
		if name := t.Jobs[i].Tenant; !slices.Contains(have, name) {
			have = append(have, name)
		}
	}
	slices.Sort(have)
	for _, name := range r.Tenants {
		if !slices.Contains(have, name) {
			if len(have) > 20 {
				have = append(have[:20], "…")
			}
			return nil, fmt.Errorf("--tenants %s: %s has no such tenant; it has %s", name, t.Name, strings.Join(have, ", "))
		}
	}
	return t.OfTenants(r.Tenants...), nil
}
