// Package terms compiles a sweep's spec, which has durations and sizes as text, to the values that decisions use. This
// happens once, when the sweep is accepted. The package is deterministic and does no I/O.
package terms

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/tuner/registry"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Terms are the compiled spec of a sweep. They are immutable: an extended sweep gets new ones.
type Terms struct {
	// Demand is the demand of one trial, in the first rung if the demand grows.
	Demand cluster.Demand
	Growth Growth
	// LeastForks and MostForks limit the number of forks that may train one trial at once; 0 without forks.
	LeastForks, MostForks int
	// Merge is the way to average the forks.
	Merge Merge
	// WallTime is the time after its submission when the sweep ends; 0 for never.
	WallTime time.Duration
	// ClientTimeout is the silence after which a trial is taken back from a client; 0 for never.
	ClientTimeout time.Duration
	// SaveEvery is the maximum time between checkpoints of a running trial.
	SaveEvery time.Duration
	// HangTimeout is the silence after which a process is stopped; 0 for never.
	HangTimeout time.Duration
	// Grace is the time that a program may take to stop.
	Grace time.Duration
	// Utility is the worth of finishing a trial, or nil if the spec does not set it.
	Utility *Utility
	// The sweep should be done DeadlineIn after its submission, or at DeadlineAt; both are zero without a deadline.
	DeadlineIn time.Duration
	DeadlineAt time.Time
}

// These are the defaults of fields that a spec leaves out.
const (
	saveEvery    = 30 * time.Second
	programGrace = 10 * time.Second
)

// Of compiles a spec. An error names the invalid fields, which count as unset, so that a ledger gives the same state
// whatever an earlier version accepted.
func Of(s *outbidv1.SweepSpec) (*Terms, error) {
	var wrong []error
	duration := func(field, text string) time.Duration {
		if text == "" {
			return 0
		}
		d, err := ParseDuration(text)
		if err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %w", field, err))
		}
		return d
	}
	t := &Terms{
		Demand:        demand(s),
		Growth:        growthOf(s),
		WallTime:      duration("limits.wall_time", s.GetLimits().GetWallTime()),
		ClientTimeout: duration("external.timeout", s.GetExternal().GetTimeout()),
		SaveEvery:     cmp.Or(duration("checkpoints.every", s.GetCheckpoints().GetEvery()), saveEvery),
		HangTimeout:   duration("hang_timeout", s.GetHangTimeout()),
		Grace:         cmp.Or(duration("program.grace", s.GetProgram().GetGrace()), programGrace),
	}
	var err error
	if t.Utility, err = UtilityOf(s.GetUtility()); err != nil {
		wrong = append(wrong, err)
	}
	if t.DeadlineIn, t.DeadlineAt, err = ParseDeadline(s.GetDeadline()); err != nil {
		wrong = append(wrong, fmt.Errorf("deadline: %w", err))
	}
	if memory := s.GetResources().GetMemory(); memory != "" {
		bytes, err := ParseBytes(memory)
		if err != nil {
			wrong = append(wrong, fmt.Errorf("resources.memory: %w", err))
		}
		t.Demand.Memory = bytes
	}
	if t.LeastForks, t.MostForks, err = ParseForks(s.GetResources().GetForks()); err != nil {
		wrong = append(wrong, fmt.Errorf("resources.forks: %w", err))
	}
	if t.Merge, err = ParseMerge(s.GetResources().GetForksMerge()); err != nil {
		wrong = append(wrong, fmt.Errorf("resources.forks_merge: %w", err))
	}
	return t, errors.Join(wrong...)
}

// Growth is the growth of a trial's demand with its rung; the zero value means that it does not grow.
type Growth struct {
	// Rung is the number of steps of the first rung. Factor is the ratio of the steps, and of the devices, of
	// successive rungs.
	Rung, Factor int64
}

func growthOf(s *outbidv1.SweepSpec) Growth {
	rung, factor := registry.Growth(s.GetTuner())
	return Growth{Rung: rung, Factor: factor}
}

// mostGrown limits the devices of a trial whose demand grows, like the limit in package spec.
const mostGrown = 4096

// DemandUntil returns the demand of a trial that trains until a step. With growth, the maximum number of devices grows
// by the same factor as the steps from rung to rung, while the number of trials falls.
func (t *Terms) DemandUntil(step int64) cluster.Demand {
	d := t.Demand
	if t.Growth.Factor < 2 {
		return d
	}
	for rung := t.Growth.Rung; rung <= step/t.Growth.Factor && d.Max < mostGrown; rung *= t.Growth.Factor {
		d.Max = min(mostGrown, d.Max*int(t.Growth.Factor))
	}
	return d
}

// demand returns the demand of one trial, except for memory.
func demand(s *outbidv1.SweepSpec) cluster.Demand {
	r := s.GetResources()
	d := cluster.Demand{
		Min: max(1, int(r.GetDevices().GetMin())), Types: r.GetTypes(), Exclude: r.GetExcludeTypes(), CPUs: r.GetCpus(),
		NeedsTrust: s.GetFunction() != nil, MultiNode: r.GetSpread(), Mixed: r.GetMixed(),
	}
	d.Max = max(d.Min, int(r.GetDevices().GetMax()))
	for _, h := range s.GetThroughputs() {
		if h.GetStepsPerSecond() == 0 && h.GetType() != "" && h.Trial == nil && !slices.Contains(d.Exclude, h.GetType()) {
			d.Exclude = append(slices.Clip(d.Exclude), h.GetType()) // a hint of 0 means that it does not run there
		}
	}
	return d
}
