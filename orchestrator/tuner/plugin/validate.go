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
	onItsWay place = iota
	waits
	completed
	ended
)

// newValidator takes maxSteps from the plugin's settings. A built-in tuner served by a plugin checks its own limit.
func newValidator(s tuner.Settings) (*validator, error) {
	g := &validator{}
	return g, g.use(s)
}

func (g *validator) use(s tuner.Settings) error {
	g.maxSteps = s.Spec.GetTuner().GetPlugin().GetMaxSteps()
	if len(s.Spec.GetSpace()) == 0 {
		g.space = nil
		return nil
	}
	var err error
	g.space, err = space.Compile(s.Spec.GetSpace(), s.Spec.GetConstraints())
	return err
}

// seen updates the state for an event that is sent to the plugin.
func (g *validator) seen(event tuner.Event) error {
	switch e := event.(type) {
	case tuner.Reached:
		return g.put(e.Trial, waits)
	case tuner.Exited:
		return g.put(e.Trial, ended)
	case tuner.Extended:
		g.Extended = true
		return g.use(e.Settings)
	default:
		return nil
	}
}

// over reports whether an event concerns a trial that the plugin has ended. Such an event occurred before the plugin's
// answer arrived.
func (g *validator) over(event tuner.Event) bool {
	t := tuner.Trial(-1)
	switch e := event.(type) {
	case tuner.Reported:
		t = e.Trial
	case tuner.Reached:
		t = e.Trial
	case tuner.Exited:
		t = e.Trial
	}
	return t >= 0 && int(t) < len(g.Places) && g.Places[t] >= completed
}

func (g *validator) put(t tuner.Trial, p place) error {
	if t < 0 || int(t) >= len(g.Places) {
		return fmt.Errorf("trial %d does not exist; the tuner created %d", t, len(g.Places))
	}
	if g.Places[t] < completed {
		g.Places[t] = p
	}
	return nil
}

// check validates and applies the actions that answer an event.
func (g *validator) check(event tuner.Event, actions []tuner.Action) error {
	started := 0
	ask, asked := event.(tuner.Ask)
	for _, action := range actions {
		var err error
		switch a := action.(type) {
		case tuner.Create:
			started++
			if err = g.create(a); err == nil && !asked {
				err = errors.New("creates a trial, but was not asked for one")
			}
		case tuner.Train:
			started++
			err = g.train(a)
		case tuner.Pause:
			err = g.pause(a)
		case tuner.End:
			err = g.end(a)
		case tuner.Clone:
			err = g.clone(a)
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

func (g *validator) create(a tuner.Create) error {
	t := len(g.Targets)
	if a.Bracket < 0 {
		return fmt.Errorf("creates trial %d in bracket %d; it must not be negative", t, a.Bracket)
	}
	if a.UntilStep != 0 || g.maxSteps > 0 {
		if err := g.target(tuner.Trial(t), 0, a.UntilStep); err != nil {
			return err
		}
	}
	g.Targets = append(g.Targets, a.UntilStep)
	g.Places = append(g.Places, onItsWay)
	return g.config(tuner.Trial(t), a.Config)
}

func (g *validator) config(t tuner.Trial, config tuner.Config) error {
	if g.space == nil {
		return nil
	}
	if err := g.space.Check(config); err != nil {
		return fmt.Errorf("gives trial %d a configuration outside the search space: %w", t, err)
	}
	return nil
}

// target checks that a target increases and is within maxSteps.
func (g *validator) target(t tuner.Trial, last, until int64) error {
	if until <= last {
		return fmt.Errorf("sets the target of trial %d to step %d, which is not beyond %d", t, until, last)
	}
	if g.maxSteps > 0 && until > g.maxSteps {
		return fmt.Errorf("sets the target of trial %d to step %d, beyond max_steps %d", t, until, g.maxSteps)
	}
	return nil
}

// open returns an error if an action must not name a trial.
func (g *validator) open(verb string, t tuner.Trial) error {
	switch {
	case t < 0 || int(t) >= len(g.Places):
		return fmt.Errorf("%s trial %d, which does not exist; it created %d", verb, t, len(g.Places))
	case g.Places[t] >= completed:
		return fmt.Errorf("%s trial %d, which has ended", verb, t)
	}
	return nil
}

func (g *validator) atTarget(verb string, t tuner.Trial) error {
	if err := g.open(verb, t); err != nil {
		return err
	}
	if g.Places[t] != waits {
		return fmt.Errorf("%s trial %d, which has not reached its target %d", verb, t, g.Targets[t])
	}
	return nil
}

func (g *validator) train(a tuner.Train) error {
	again := g.Extended && a.Trial >= 0 && int(a.Trial) < len(g.Places) && g.Places[a.Trial] == completed
	if !again {
		if err := g.atTarget("trains", a.Trial); err != nil {
			return err
		}
	}
	if err := g.target(a.Trial, g.Targets[a.Trial], a.UntilStep); err != nil {
		return err
	}
	g.Targets[a.Trial], g.Places[a.Trial] = a.UntilStep, onItsWay
	return nil
}

func (g *validator) pause(a tuner.Pause) error { return g.atTarget("pauses", a.Trial) }

func (g *validator) end(a tuner.End) error {
	if err := g.open("ends", a.Trial); err != nil {
		return err
	}
	g.Places[a.Trial] = ended
	if a.Completed {
		g.Places[a.Trial] = completed
	}
	return nil
}

func (g *validator) clone(a tuner.Clone) error {
	if err := g.atTarget("clones into", a.Trial); err != nil {
		return err
	}
	if a.Source < 0 || int(a.Source) >= len(g.Places) { // a trial may clone itself, to continue with another configuration
		return fmt.Errorf("clones trial %d from trial %d, which does not exist", a.Trial, a.Source)
	}
	if err := g.target(a.Trial, g.Targets[a.Trial], a.UntilStep); err != nil {
		return err
	}
	g.Targets[a.Trial], g.Places[a.Trial] = a.UntilStep, onItsWay
	return g.config(a.Trial, a.Config)
}
