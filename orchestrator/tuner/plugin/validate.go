package plugin

import (
	"errors"
	"fmt"

	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/space"
)

// A validator tracks the state of each trial and checks a plugin's actions against it.
type validator struct {
	validatorState
	// space is nil if the sweep does not declare a space and leaves it to the plugin.
	space *space.Space
	// maxSteps is the maximum number of steps of a trial, or 0 if unlimited.
	maxSteps int64
}

// validatorState is the part of a validator that is in snapshots.
type validatorState struct {
	Targets []int64
	Places  []place
	// Extended is set if the sweep was extended, so that completed trials may be resumed.
	Extended bool
}

// A place is the validator's view of a trial's state.
type place uint8

const (
	training place = iota
	waiting
	completed
	ended
)

// newValidator takes maxSteps from the plugin's settings. A built-in tuner served by a plugin checks its own limit.
func newValidator(s tuner.Settings) (*validator, error) {
	v := &validator{}
	return v, v.configure(s)
}

func (v *validator) configure(s tuner.Settings) error {
	v.maxSteps = s.Spec.GetTuner().GetPlugin().GetMaxSteps()
	if len(s.Spec.GetSpace()) == 0 {
		v.space = nil
		return nil
	}
	var err error
	v.space, err = space.Compile(s.Spec.GetSpace(), s.Spec.GetConstraints())
	return err
}

// recordEvent updates the state for an event that is sent to the plugin.
func (v *validator) recordEvent(event tuner.Event) error {
	switch e := event.(type) {
	case tuner.Reached:
		return v.setPlace(e.Trial, waiting)
	case tuner.Exited:
		return v.setPlace(e.Trial, ended)
	case tuner.Extended:
		v.Extended = true
		return v.configure(e.Settings)
	default:
		return nil
	}
}

// isStale reports whether an event concerns a trial that the plugin has ended. Such an event occurred before the plugin's
// answer arrived.
func (v *validator) isStale(event tuner.Event) bool {
	t := tuner.Trial(-1)
	switch e := event.(type) {
	case tuner.Reported:
		t = e.Trial
	case tuner.Reached:
		t = e.Trial
	case tuner.Exited:
		t = e.Trial
	}
	return t >= 0 && int(t) < len(v.Places) && v.Places[t] >= completed
}

func (v *validator) setPlace(t tuner.Trial, p place) error {
	if t < 0 || int(t) >= len(v.Places) {
		return fmt.Errorf("trial %d does not exist; the tuner created %d", t, len(v.Places))
	}
	if v.Places[t] < completed {
		v.Places[t] = p
	}
	return nil
}

// check validates and applies the actions that answer an event.
func (v *validator) check(event tuner.Event, actions []tuner.Action) error {
	started := 0
	ask, asked := event.(tuner.Ask)
	for _, action := range actions {
		var err error
		switch a := action.(type) {
		case tuner.Create:
			started++
			if err = v.create(a); err == nil && !asked {
				err = errors.New("creates a trial, but was not asked for one")
			}
		case tuner.Train:
			started++
			err = v.train(a)
		case tuner.Pause:
			err = v.pause(a)
		case tuner.End:
			err = v.end(a)
		case tuner.Clone:
			err = v.clone(a)
		}
		if err != nil {
			return err
		}
	}
	if asked && started > ask.N {
		return fmt.Errorf("was asked for at most %d trials but started %d", ask.N, started)
	}
	return nil
}

func (v *validator) create(a tuner.Create) error {
	t := len(v.Targets)
	if a.Bracket < 0 {
		return fmt.Errorf("creates trial %d in bracket %d; it must not be negative", t, a.Bracket)
	}
	if a.UntilStep != 0 || v.maxSteps > 0 {
		if err := v.checkTarget(tuner.Trial(t), 0, a.UntilStep); err != nil {
			return err
		}
	}
	v.Targets = append(v.Targets, a.UntilStep)
	v.Places = append(v.Places, training)
	return v.checkConfig(tuner.Trial(t), a.Config)
}

func (v *validator) checkConfig(t tuner.Trial, config tuner.Config) error {
	if v.space == nil {
		return nil
	}
	if err := v.space.Check(config); err != nil {
		return fmt.Errorf("gives trial %d a configuration outside the search space: %w", t, err)
	}
	return nil
}

// checkTarget checks that a target increases and is within maxSteps.
func (v *validator) checkTarget(t tuner.Trial, last, until int64) error {
	if until <= last {
		return fmt.Errorf("sets the target of trial %d to step %d, which is not beyond %d", t, until, last)
	}
	if v.maxSteps > 0 && until > v.maxSteps {
		return fmt.Errorf("sets the target of trial %d to step %d, beyond max_steps %d", t, until, v.maxSteps)
	}
	return nil
}

// checkOpen returns an error if an action must not name a trial.
func (v *validator) checkOpen(verb string, t tuner.Trial) error {
	switch {
	case t < 0 || int(t) >= len(v.Places):
		return fmt.Errorf("%s trial %d, which does not exist; it created %d", verb, t, len(v.Places))
	case v.Places[t] >= completed:
		return fmt.Errorf("%s trial %d, which has ended", verb, t)
	}
	return nil
}

func (v *validator) checkAtTarget(verb string, t tuner.Trial) error {
	if err := v.checkOpen(verb, t); err != nil {
		return err
	}
	if v.Places[t] != waiting {
		return fmt.Errorf("%s trial %d, which has not reached its target %d", verb, t, v.Targets[t])
	}
	return nil
}

func (v *validator) train(a tuner.Train) error {
	again := v.Extended && a.Trial >= 0 && int(a.Trial) < len(v.Places) && v.Places[a.Trial] == completed
	if !again {
		if err := v.checkAtTarget("trains", a.Trial); err != nil {
			return err
		}
	}
	if err := v.checkTarget(a.Trial, v.Targets[a.Trial], a.UntilStep); err != nil {
		return err
	}
	v.Targets[a.Trial], v.Places[a.Trial] = a.UntilStep, training
	return nil
}

func (v *validator) pause(a tuner.Pause) error { return v.checkAtTarget("pauses", a.Trial) }

func (v *validator) end(a tuner.End) error {
	if err := v.checkOpen("ends", a.Trial); err != nil {
		return err
	}
	v.Places[a.Trial] = ended
	if a.Completed {
		v.Places[a.Trial] = completed
	}
	return nil
}

func (v *validator) clone(a tuner.Clone) error {
	if err := v.checkAtTarget("clones into", a.Trial); err != nil {
		return err
	}
	if a.Source < 0 || int(a.Source) >= len(v.Places) { // a trial may clone itself, to continue with another configuration
		return fmt.Errorf("clones trial %d from trial %d, which does not exist", a.Trial, a.Source)
	}
	if err := v.checkTarget(a.Trial, v.Targets[a.Trial], a.UntilStep); err != nil {
		return err
	}
	v.Targets[a.Trial], v.Places[a.Trial] = a.UntilStep, training
	return v.checkConfig(a.Trial, a.Config)
}
