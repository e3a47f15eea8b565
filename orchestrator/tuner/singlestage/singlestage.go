// Package singlestage trains every trial for the same number of steps, or until its code ends. It implements random,
// grid, Sobol and Bayesian search, and is the base of median stopping.
//
// After an extension to more steps, all completed trials are resumed.
package singlestage

import (
	"fmt"

	"github.com/dustin/go-humanize/english"

	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/engine"
	"github.com/outbid-dev/outbid/orchestrator/tuner/sample"
	"github.com/outbid-dev/outbid/orchestrator/tuner/saturate"
	"github.com/outbid-dev/outbid/orchestrator/tuner/setting"
)

// Rules train every trial to the same step.
type Rules struct {
	*engine.Core
	// Label describes the sampler in reasons.
	Label string
	// Total returns the number of configurations, or 0 if unlimited.
	Total func() (int, error)
	State
}

// State is the part of a snapshot besides the trials.
type State struct {
	// Resume lists the trials that completed before an extension and are to be resumed.
	Resume []tuner.Trial
}

// New returns rules whose reasons call a new trial by label, such as "random draw".
func New(c *engine.Core, label string) *Rules {
	return &Rules{Core: c, Label: label, Total: func() (int, error) { return 0, nil }}
}

// NewSampled returns rules whose label names the sampler.
func NewSampled(c *engine.Core) *Rules {
	switch setting.SamplerName(c.Tuner) {
	case "sobol":
		return New(c, "Sobol point")
	case sample.BayesName:
		return New(c, "Bayesian choice")
	default:
		return New(c, "random draw")
	}
}

// Ask implements engine.Rules.
func (f *Rules) Ask(n int) error {
	for n > 0 && len(f.Resume) > 0 {
		t := f.Resume[0]
		f.Resume = f.Resume[1:]
		if f.Trials[t].Phase != engine.Ready {
			continue
		}
		f.Train(t, f.Steps, fmt.Sprintf("the sweep was extended to %s", english.Plural(int(f.Steps), "step", "")))
		n--
	}
	for n > 0 && f.CanCreate() {
		reason := fmt.Sprintf("%s %d", f.Label, len(f.Trials)+1)
		if f.Limit() > 0 {
			reason += fmt.Sprintf(" of %d", f.Limit())
		}
		_, ok, err := f.Create(engine.Record{}, f.Steps, 0, reason)
		if err != nil || !ok {
			return err
		}
		n--
	}
	return nil
}

// Reported implements engine.Rules.
func (f *Rules) Reported(tuner.Reported) {}

// Reached implements engine.Rules.
func (f *Rules) Reached(e tuner.Reached) error {
	if e.Step < f.Steps {
		// The target was set before the sweep was extended.
		f.Train(e.Trial, f.Steps, fmt.Sprintf("the sweep was extended to %s", english.Plural(int(f.Steps), "step", "")))
		return nil
	}
	f.End(e.Trial, true, fmt.Sprintf("trained for all its %s", english.Plural(int(e.Step), "step", "")))
	return nil
}

// HandleExit implements engine.Rules.
func (f *Rules) HandleExit(tuner.Exited, engine.Phase) {}

// Extend implements engine.Rules.
func (f *Rules) Extend(old tuner.Settings) error {
	if f.Steps <= tuner.MaxSteps(old.Spec.GetTuner()) {
		return nil
	}
	for t, r := range f.Trials {
		if r.Phase == engine.Completed {
			f.Trials[t].Phase = engine.Ready
			f.Resume = append(f.Resume, tuner.Trial(t))
		}
	}
	return nil
}

// Status implements engine.Rules.
func (f *Rules) Status() tuner.Status {
	idle := len(f.Resume) == 0 && !f.CanCreate()
	return tuner.Status{Waiting: idle, Exhausted: idle}
}

// Outlook implements engine.Rules.
func (f *Rules) Outlook() tuner.Outlook {
	n := f.Limit()
	if total, err := f.Total(); err == nil && total > 0 && (n == 0 || total < n) {
		n = total
	}
	steps := saturate.Times(int64(n), f.Steps)
	return tuner.Outlook{Trials: n, Steps: steps, Rungs: []tuner.Rung{{UntilStep: f.Steps, Trials: n, Steps: steps}}}
}

// Save implements engine.Rules.
func (f *Rules) Save() (any, error) { return f.State, nil }

// Load implements engine.Rules.
func (f *Rules) Load(decode func(any) error) error {
	if err := decode(&f.State); err != nil {
		return err
	}
	return f.State.Check(len(f.Trials))
}

// Check reports a state that does not fit a number of trials.
func (s State) Check(trials int) error {
	for _, t := range s.Resume {
		if t < 0 || int(t) >= trials {
			return tuner.ErrBadSnapshot
		}
	}
	return nil
}
