package generate

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/outbid-dev/outbid/orchestrator/trace"
)

// ASTRAEAOptions describe the snapshots of the ASTRAEA paper, section 6.1.2.
type ASTRAEAOptions struct {
	Seed uint64
	// Base is the cluster's trace: Philly's or Venus's.
	Base *trace.Trace
	// Days is the length of the snapshot, the busiest such time of the base trace.
	Days float64
	// Jobs is the number of jobs in the snapshot; 0 for all that arrive in it. If there are more, Jobs of them are
	// drawn. A published excerpt of a base trace may have fewer; the rest is then drawn from its other jobs, with
	// arrivals near those in the snapshot.
	Jobs int
}

// ASTRAEAPhilly returns the paper's figures for Philly: two weeks, 44,329 jobs (on 210 nodes of 8 GPUs).
func ASTRAEAPhilly(base *trace.Trace) ASTRAEAOptions {
	return ASTRAEAOptions{Base: base, Days: 14, Jobs: 44329}
}

// ASTRAEAVenus returns the paper's figures for Venus: two weeks, 11,304 jobs (on 100 nodes of 8 GPUs).
func ASTRAEAVenus(base *trace.Trace) ASTRAEAOptions {
	return ASTRAEAOptions{Base: base, Days: 14, Jobs: 11304}
}

// MakeASTRAEA cuts a snapshot. CPU jobs are dropped; durations and gangs do not change. Following the paper's
// assumption for Philly, the tenants' weights are proportional to the GPUs that all their jobs in the snapshot request.
func MakeASTRAEA(o ASTRAEAOptions) (*trace.Trace, error) {
	if o.Base == nil {
		return nil, errors.New("make an astraea snapshot: the base trace is missing")
	}
	if err := positive("make an astraea snapshot", setting{"days", o.Days}); err != nil {
		return nil, err
	}
	if o.Jobs < 0 {
		return nil, fmt.Errorf("make an astraea snapshot: jobs is %d: want 0 or more", o.Jobs)
	}
	base, span := o.Base.GPUJobs(), o.Days*86400
	if len(base.Jobs) == 0 {
		return nil, fmt.Errorf("make an astraea snapshot: %s has no GPU jobs", o.Base.Name)
	}
	start := base.Busiest(span)
	out := base.Window(start, start+span)
	found, drawn := len(out.Jobs), 0
	d := newDraw(o.Seed, "astraea")
	switch {
	case o.Jobs == 0:
	case found > o.Jobs:
		out = out.With(d.sample(out.Jobs, o.Jobs))
	case found < o.Jobs:
		drawn = o.Jobs - found
		out = out.With(append(out.Jobs, o.fill(base, out.Jobs, start, drawn, d)...))
	}
	out.Name = fmt.Sprintf("%s-%gd-%d", o.Base.Name, o.Days, o.Seed)
	out.Source = fmt.Sprintf("%s: %d jobs in the %g days from day %.2f on; %d jobs in the snapshot, %d of them drawn "+
		"from the other days, seed %d", o.Base.Name, found, o.Days, start/86400, len(out.Jobs), drawn, o.Seed)
	out.Order()
	out.Tenants = WeighByDemand(out)
	return out, nil
}

// sample draws n jobs without replacement, and keeps their order.
func (d draw) sample(jobs []trace.Job, n int) []trace.Job {
	chosen := d.Perm(len(jobs))[:n]
	slices.Sort(chosen)
	out := make([]trace.Job, n)
	for i, at := range chosen {
		out[i] = jobs[at]
	}
	return out
}

// fill draws jobs from outside the snapshot, some of them twice if there are not enough. A job arrives within a minute
// of a job in the snapshot.
func (o *ASTRAEAOptions) fill(base *trace.Trace, inside []trace.Job, start float64, n int, d draw) []trace.Job {
	span := o.Days * 86400
	outside := base.Filter(func(j *trace.Job) bool { return j.Submit < start || j.Submit >= start+span }).Jobs
	if len(outside) == 0 {
		outside = inside
	}
	out := make([]trace.Job, 0, n)
	for len(out) < n {
		for _, at := range d.Perm(len(outside))[:min(n-len(out), len(outside))] {
			job := outside[at]
			near := inside[d.IntN(len(inside))].Submit
			job.Submit = min(span, max(0, near+d.between(-60, 60)))
			job.ID = "drawn-" + strconv.Itoa(len(out)) + "-" + job.ID
			out = append(out, job)
		}
	}
	return out
}

// WeighByDemand returns the tenants of a trace with weights proportional to the GPUs that their jobs request. The
// weights sum to 1.
func WeighByDemand(t *trace.Trace) []trace.Tenant {
	demand, total := make(map[string]float64), 0.0
	for i := range t.Jobs {
		gpus := float64(t.Jobs[i].MaxGPUs) * t.Jobs[i].Share
		demand[t.Jobs[i].Tenant] += gpus
		total += gpus
	}
	var tenants []trace.Tenant
	for _, name := range slices.Sorted(maps.Keys(demand)) {
		if name != "" && total > 0 {
			tenants = append(tenants, trace.Tenant{Name: name, Weight: demand[name] / total})
		}
	}
	return tenants
}
