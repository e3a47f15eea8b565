// Package engine is what the built-in tuners share. An engine is a tuner that keeps the trials, draws configurations and
// takes snapshots, and leaves the decisions to the Rules of its Kind.
package engine

import (
	"fmt"
	"math"

	"github.com/outbid-dev/outbid/orchestrator/tuner"
)

// Rules implement one built-in tuner. They receive only events of trials that exist and have not ended, and append
// their actions to the core.
type Rules interface {
	Ask(n int) error
	Reported(tuner.Reported)
	Reached(tuner.Reached) error
	// HandleExit handles a trial that exited. Its phase is already set; before is its previous phase.
	HandleExit(e tuner.Exited, before Phase)
	// Extend handles new settings, which the core already has; old are the previous ones.
	Extend(old tuner.Settings) error
	Status() tuner.Status
	Outlook() tuner.Outlook
	// Save returns the rules' own state as a value for encoding/gob. Load decodes it into new rules.
	Save() (any, error)
	Load(decode func(any) error) error
}

// An engine is a built-in tuner: the core and its rules.
type engine struct {
	*Core
	kind  *Kind
	rules Rules
}

// Handle implements Tuner.
func (e *engine) Handle(event tuner.Event) ([]tuner.Action, error) {
	e.out = nil
	if err := e.handle(event); err != nil {
		return nil, fmt.Errorf("tuner %s: %w", e.kind.Name, err)
	}
	return e.out, nil
}

func (e *engine) handle(event tuner.Event) error {
	switch v := event.(type) {
	case tuner.Ask:
		if v.N <= 0 {
			return nil
		}
		return e.rules.Ask(v.N)
	case tuner.Reported:
		if over, err := e.hasEnded(v.Trial); over || err != nil {
			return err
		}
		e.observe(v.Trial, v.Step, v.Metric, v.Metrics)
		e.rules.Reported(v)
		return nil
	case tuner.Reached:
		over, err := e.hasEnded(v.Trial)
		if over || err != nil {
			return err
		}
		if e.Trials[v.Trial].Phase != Running {
			return nil // a repeated event
		}
		e.observe(v.Trial, v.Step, v.Metric, v.Metrics)
		e.Configs.recordCosts(v.Trial, e.costs(v.Metric, v.Metrics))
		err = e.rules.Reached(v)
		if e.Curves != nil && e.Trials[v.Trial].Phase == Completed {
			e.Curves.SetWhole(int(v.Trial), true)
		}
		return err
	case tuner.Exited:
		over, err := e.hasEnded(v.Trial)
		if over || err != nil {
			return err
		}
		before := e.Trials[v.Trial].Phase
		e.Trials[v.Trial].Phase = Exited
		e.Configs.recordCosts(v.Trial, e.exitCosts(v))
		if e.Curves != nil && !v.Failed {
			e.observe(v.Trial, v.Step, v.Metric, v.Metrics)
			e.Curves.SetWhole(int(v.Trial), true)
		}
		e.rules.HandleExit(v, before)
		return nil
	case tuner.Extended:
		return e.extend(v.Settings)
	default:
		return fmt.Errorf("unknown event %T; want Ask, Reported, Reached, Exited or Extended", event)
	}
}

// costs returns the cost of the sweep's metric, and those of its other objectives if the sampler learns from them. A cost
// that is not known is NaN.
func (e *engine) costs(metric float64, metrics map[string]float64) []float64 {
	found := []float64{e.Cost(metric)}
	if !e.kind.Several {
		return found
	}
	for _, o := range e.Spec.GetObjectives() {
		value, known := metrics[o.GetMetric()]
		switch {
		case !known:
			value = math.NaN()
		case o.GetMode() == "max":
			value = -value
		}
		found = append(found, value)
	}
	return found
}

// exitCosts returns the costs of a trial that exited, which are NaN if it failed.
func (e *engine) exitCosts(v tuner.Exited) []float64 {
	if v.Failed {
		return e.costs(math.NaN(), nil)
	}
	return e.costs(v.Metric, v.Metrics)
}

// hasEnded reports whether a trial has ended, so that its late events must be ignored.
func (e *engine) hasEnded(t tuner.Trial) (bool, error) {
	if t < 0 || int(t) >= len(e.Trials) {
		return false, fmt.Errorf("trial %d does not exist; the tuner created %d", t, len(e.Trials))
	}
	return e.Trials[t].Phase.Ended(), nil
}

// extend applies new settings. On an error nothing has changed.
func (e *engine) extend(s tuner.Settings) error {
	old := tuner.Settings{Spec: e.Spec}
	if err := e.kind.CheckExtension(old, s); err != nil {
		return fmt.Errorf("extend: %w", err)
	}
	if err := e.Configs.widen(old.Spec, s.Spec); err != nil {
		return fmt.Errorf("extend: %w", err)
	}
	e.use(s.Spec)
	if err := e.rules.Extend(old); err != nil {
		return err
	}
	e.reopenCurves()
	return nil
}

// Status implements Tuner.
func (e *engine) Status() tuner.Status { return e.rules.Status() }

// Outlook implements Tuner.
func (e *engine) Outlook() tuner.Outlook { return e.rules.Outlook() }
