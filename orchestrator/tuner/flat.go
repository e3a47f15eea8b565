package tuner

import (
	"fmt"

	"github.com/dustin/go-humanize/english"

	"github.com/outbid-dev/outbid/orchestrator/tuner/setting"
)

// A singleStage trains every trial for the same number of steps, or until its code ends. It implements random, grid,
// Sobol and Bayesian search, and is the base of median stopping.
//
// After an extension to more steps, all completed trials are resumed.
type singleStage struct {
	*core
	// label describes the sampler in reasons.
	label string
	// total returns the number of configurations, or 0 if unlimited.
	total func() (int, error)
	singleStageState
}

// singleStageState is the part of a snapshot besides the trials.
type singleStageState struct {
	// Resume lists the trials that completed before an extension and are to be resumed.
	Resume []Trial
}

func newSingleStage(c *core, label string) *singleStage {
	return &singleStage{core: c, label: label, total: func() (int, error) { return 0, nil }}
}

// newSampled returns a singleStage whose label names the sampler.
func newSampled(c *core) *singleStage {
	if setting.SamplerName(c.tuner) == "sobol" {
		return newSingleStage(c, "Sobol point")
	}
	return newSingleStage(c, "random draw")
}

func (f *singleStage) ask(n int) error {
	for n > 0 && len(f.Resume) > 0 {
		t := f.Resume[0]
		f.Resume = f.Resume[1:]
		if f.trials[t].phase != ready {
			continue
		}
		f.train(t, f.steps, fmt.Sprintf("the sweep was extended to %s", english.Plural(int(f.steps), "step", "")))
		n--
	}
	for n > 0 && f.canCreate() {
		reason := fmt.Sprintf("%s %d", f.label, len(f.trials)+1)
		if f.limit() > 0 {
			reason += fmt.Sprintf(" of %d", f.limit())
		}
		_, ok, err := f.create(record{}, f.steps, 0, reason)
		if err != nil || !ok {
			return err
		}
		n--
	}
	return nil
}

func (f *singleStage) reported(Reported) {}

func (f *singleStage) reached(e Reached) error {
	if e.Step < f.steps {
		// The target was set before the sweep was extended.
		f.train(e.Trial, f.steps, fmt.Sprintf("the sweep was extended to %s", english.Plural(int(f.steps), "step", "")))
		return nil
	}
	f.end(e.Trial, true, fmt.Sprintf("trained for all its %s", english.Plural(int(e.Step), "step", "")))
	return nil
}

func (f *singleStage) handleExit(Exited, phase) {}

func (f *singleStage) extend(old Settings) error {
	if f.steps <= MaxSteps(old.Spec.GetTuner()) {
		return nil
	}
	for t, r := range f.trials {
		if r.phase == completed {
			f.trials[t].phase = ready
			f.Resume = append(f.Resume, Trial(t))
		}
	}
	return nil
}

func (f *singleStage) status() Status {
	idle := len(f.Resume) == 0 && !f.canCreate()
	return Status{Waiting: idle, Exhausted: idle}
}

func (f *singleStage) outlook() Outlook {
	n := f.limit()
	if total, err := f.total(); err == nil && total > 0 && (n == 0 || total < n) {
		n = total
	}
	steps := times(int64(n), f.steps)
	return Outlook{Trials: n, Steps: steps, Rungs: []Rung{{UntilStep: f.steps, Trials: n, Steps: steps}}}
}

func (f *singleStage) save() (any, error) { return f.singleStageState, nil }

func (f *singleStage) load(decode func(any) error) error {
	if err := decode(&f.singleStageState); err != nil {
		return err
	}
	return f.singleStageState.check(len(f.trials))
}

func (s singleStageState) check(trials int) error {
	for _, t := range s.Resume {
		if t < 0 || int(t) >= trials {
			return ErrBadSnapshot
		}
	}
	return nil
}
