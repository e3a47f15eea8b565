package tuner

import (
	"fmt"
	"math"
)

// rules implement one built-in tuner. They receive only events of trials that exist and have not ended, and append
// their actions to the core.
type rules interface {
	ask(n int) error
	reported(Reported)
	reached(Reached) error
	// handleExit handles a trial that exited. Its phase is already set; before is its previous phase.
	handleExit(e Exited, before phase)
	// extend handles new settings, which the core already has; old are the previous ones.
	extend(old Settings) error
	status() Status
	outlook() Outlook
	// save returns the rules' own state as a value for encoding/gob. load decodes it into new rules.
	save() (any, error)
	load(decode func(any) error) error
}

// An engine is a built-in tuner: the core and its rules.
type engine struct {
	*core
	kind  *kind
	rules rules
}

// Handle implements Tuner.
func (e *engine) Handle(event Event) ([]Action, error) {
	e.out = nil
	if err := e.handle(event); err != nil {
		return nil, fmt.Errorf("tuner %s: %w", e.kind.name, err)
	}
	return e.out, nil
}

func (e *engine) handle(event Event) error {
	switch v := event.(type) {
	case Ask:
		if v.N <= 0 {
			return nil
		}
		return e.rules.ask(v.N)
	case Reported:
		if over, err := e.hasEnded(v.Trial); over || err != nil {
			return err
		}
		e.rules.reported(v)
		return nil
	case Reached:
		over, err := e.hasEnded(v.Trial)
		if over || err != nil {
			return err
		}
		if e.trials[v.Trial].phase != running {
			return nil // a repeated event
		}
		e.configs.recordCost(v.Trial, e.cost(v.Metric))
		return e.rules.reached(v)
	case Exited:
		over, err := e.hasEnded(v.Trial)
		if over || err != nil {
			return err
		}
		before := e.trials[v.Trial].phase
		e.trials[v.Trial].phase = exited
		e.configs.recordCost(v.Trial, e.exitCost(v))
		e.rules.handleExit(v, before)
		return nil
	case Extended:
		return e.extend(v.Settings)
	default:
		return fmt.Errorf("unknown event %T; want Ask, Reported, Reached, Exited or Extended", event)
	}
}

// exitCost returns the cost of a trial that exited, or NaN if it failed.
func (e *engine) exitCost(v Exited) float64 {
	if v.Failed {
		return math.NaN()
	}
	return e.cost(v.Metric)
}

// hasEnded reports whether a trial has ended, so that its late events must be ignored.
func (e *engine) hasEnded(t Trial) (bool, error) {
	if t < 0 || int(t) >= len(e.trials) {
		return false, fmt.Errorf("trial %d does not exist; the tuner created %d", t, len(e.trials))
	}
	return e.trials[t].phase.ended(), nil
}

// extend applies new settings. On an error nothing has changed.
func (e *engine) extend(s Settings) error {
	old := Settings{Spec: e.spec}
	if err := e.kind.checkExtension(old, s); err != nil {
		return fmt.Errorf("extend: %w", err)
	}
	if err := e.configs.widen(old.Spec, s.Spec); err != nil {
		return fmt.Errorf("extend: %w", err)
	}
	e.use(s.Spec)
	return e.rules.extend(old)
}

// Status implements Tuner.
func (e *engine) Status() Status { return e.rules.status() }

// Outlook implements Tuner.
func (e *engine) Outlook() Outlook { return e.rules.outlook() }
