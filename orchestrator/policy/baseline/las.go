package baseline

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/policy"
)

// LAS is least attained service as defined in Themis's evaluation (NSDI 2020, sections 2 and 6): devices are leased for
// a time, and when leases end they go to the sweep with the least device time so far, as many as it can use, then to
// the next. Tiresias itself has queues with thresholds instead, within which running jobs continue.
type LAS struct {
	Unit   Unit
	slices TimeSlices
}

// NewLAS makes it from options.
func NewLAS(o *policy.Options) *LAS {
	return &LAS{
		Unit: Unit(o.Text("unit", string(ByApp), "whose service counts: app, that of a sweep with all its trials; or job, that of each trial",
			string(ByApp), string(ByJob))),
		slices: TimeSlices{Length: o.Duration("lease", 10*time.Minute, "length of a lease; all leases end together")},
	}
}

// Name implements policy.Policy.
func (*LAS) Name() string { return "las" }

// Snapshot implements policy.Policy.
func (l *LAS) Snapshot() ([]byte, error) { return l.slices.snapshot() }

// Restore implements policy.Policy.
func (l *LAS) Restore(b []byte) error {
	if err := l.slices.restore(b); err != nil {
		return fmt.Errorf("las: %w", err)
	}
	return nil
}

// Decide implements policy.Policy.
func (l *LAS) Decide(v *policy.View) policy.Plan {
	return l.slices.Decide(v, func() []*policy.Job { return l.order(v) }, "the least attained service of those that fit")
}

// order lists jobs by service, least first, and in order of arrival among equals.
func (l *LAS) order(v *policy.View) []*policy.Job {
	service := func(j *policy.Job) float64 { return v.Attained(j) }
	if l.Unit == ByApp {
		service = PerApp(v, appAttained)
	}
	jobs := v.Jobs()
	line := make([]ranked, len(jobs))
	for i, j := range jobs {
		line[i] = ranked{j, service(j), i}
	}
	slices.SortFunc(line, func(a, b ranked) int { return cmp.Or(cmp.Compare(a.key, b.key), a.place-b.place) })
	for i := range line {
		jobs[i] = line[i].job
	}
	return jobs
}
