// Package terms compiles what a sweep's spec says in words, durations and sizes, into what decisions are made with: once
// when the sweep is accepted, not whenever something is decided. It is pure.
package terms

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Terms are what a sweep was accepted on. They are never changed: an extended sweep has others.
type Terms struct {
	// Demand is what one trial needs, in the first rung if its demand grows.
	Demand cluster.Demand
	Growth Growth
	// LeastForks and MostForks are how many forks may train one trial at once; 0 for one process alone.
	LeastForks, MostForks int
	// Merge is how what they learned is put together.
	Merge Merge
	// WallTime ends the sweep so long after its submission; 0 for never.
	WallTime time.Duration
	// ClientTimeout takes a trial back from a client that says nothing for so long; 0 for never.
	ClientTimeout time.Duration
	// SaveEvery is how often a running trial saves at least.
	SaveEvery time.Duration
	// HangTimeout ends a process that says nothing for so long; 0 for never.
	HangTimeout time.Duration
	// Grace is how long a program may take to stop.
	Grace time.Duration
	// Utility is what the end of a trial is worth; nil if nothing is said.
	Utility *Utility
	// DeadlineIn is when the sweep should be done after its submission, DeadlineAt when by the clock; zero for no deadline.
	DeadlineIn time.Duration
	DeadlineAt time.Time
}

// What holds where a spec says nothing.
const (
	saveEvery    = 30 * time.Second
	programGrace = 10 * time.Second
)

// Of compiles a spec. An error names the fields that cannot be read, which count as if they said nothing: so a ledger is
// folded the same, whatever an earlier version let through.
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
	if s.GetUtility() == nil {
		t.Utility = labelledUtility(s.GetLabels())
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

// Growth is how a trial's demand grows with its rung; the zero value says that it does not.
type Growth struct {
	// Rung is the steps of the first rung, and Factor that from one rung to the next: of steps, and of devices.
	Rung, Factor int64
}

func growthOf(s *outbidv1.SweepSpec) Growth {
	set := s.GetTuner().GetSuccessiveHalving()
	if !set.GetGrow() {
		return Growth{}
	}
	return Growth{Rung: max(1, set.GetMinSteps()), Factor: int64(cmp.Or(set.GetEta(), 3))}
}

// mostGrown bounds the devices of a trial whose demand grows, as a spec's own bound does.
const mostGrown = 4096

// DemandUntil is what a trial needs that is to train until a step: in successive halving that grows, each rung may use as many
// times more devices as it trains longer, and fewer trials.
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

// demand is what one trial needs, but for memory.
func demand(s *outbidv1.SweepSpec) cluster.Demand {
	r := s.GetResources()
	d := cluster.Demand{
		Min: max(1, int(r.GetDevices().GetMin())), Types: r.GetTypes(), Exclude: r.GetExcludeTypes(), CPUs: r.GetCpus(),
		NeedsTrust: s.GetFunction() != nil, MultiNode: r.GetSpread(), Mixed: r.GetMixed(),
	}
	d.Max = max(d.Min, int(r.GetDevices().GetMax()))
	for _, h := range s.GetThroughputs() {
		if h.GetStepsPerSecond() == 0 && h.GetType() != "" && h.Trial == nil && !slices.Contains(d.Exclude, h.GetType()) {
			d.Exclude = append(slices.Clip(d.Exclude), h.GetType()) // it does not run there
		}
	}
	return d
}
