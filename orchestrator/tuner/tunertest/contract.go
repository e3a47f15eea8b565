package tunertest

import (
	"errors"
	"fmt"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/tuner"
)

// apply carries out a tuner's actions and returns an error if they violate the contract.
func (d *driver) apply(e tuner.Event, actions []tuner.Action) error {
	started := 0
	for _, a := range actions {
		var err error
		switch a := a.(type) {
		case tuner.Create:
			started++
			err = d.create(e, a)
		case tuner.Train:
			if reached, ok := e.(tuner.Reached); !ok || reached.Trial != a.Trial {
				started++
			}
			err = d.train(a)
		case tuner.Clone:
			err = d.clone(a)
		case tuner.Pause:
			err = d.pause(a)
		case tuner.End:
			err = d.end(a)
		default:
			err = errors.New("unknown kind of action")
		}
		if err != nil {
			return fmt.Errorf("answered %T %+v: %w", a, a, err)
		}
	}
	if ask, ok := e.(tuner.Ask); ok && started > ask.N {
		return fmt.Errorf("asked for at most %d trials, started %d", ask.N, started)
	}
	if reached, ok := e.(tuner.Reached); ok && d.Trials[reached.Trial].phase == atTarget {
		d.leave(reached.Trial, paused) // as the control loop does
	}
	return nil
}

func (d *driver) create(e tuner.Event, a tuner.Create) error {
	switch {
	case a.Reason == "":
		return errors.New("no reason")
	case a.Config == nil:
		return errors.New("no configuration")
	case a.UntilStep < 0:
		return errors.New("a negative target")
	}
	if _, ok := e.(tuner.Ask); !ok {
		return errors.New("created a trial, but the event is not an Ask")
	}
	d.Trials = append(d.Trials, Fact{Create: a, Targets: []int64{a.UntilStep}, config: a.Config})
	d.waiting = append(d.waiting, tuner.Trial(len(d.Trials)-1))
	return nil
}

// known returns the trial that an action names. A trial that has ended is an error.
func (d *driver) known(t tuner.Trial, reason string) (*Fact, error) {
	switch {
	case t < 0 || int(t) >= len(d.Trials):
		return nil, errors.New("the trial does not exist")
	case reason == "":
		return nil, errors.New("no reason")
	case d.Trials[t].Ended:
		return &d.Trials[t], errors.New("the trial has ended")
	}
	return &d.Trials[t], nil
}

func (d *driver) train(a tuner.Train) error {
	f, err := d.known(a.Trial, a.Reason)
	if f != nil && f.Completed && d.extended && a.Reason != "" {
		// An extension may resume completed trials.
		err, f.Ended, f.Completed, f.phase = nil, false, false, paused
		d.ended = slices.DeleteFunc(d.ended, func(t tuner.Trial) bool { return t == a.Trial })
	}
	if err != nil {
		return err
	}
	return d.start(a.Trial, f, a.UntilStep)
}

func (d *driver) start(t tuner.Trial, f *Fact, until int64) error {
	last := f.Targets[len(f.Targets)-1]
	switch {
	case until <= last:
		return fmt.Errorf("the target must be above the previous one, %d", last)
	case f.phase == queued || f.phase == running:
		return errors.New("the trial has not reached its target")
	}
	f.Targets = append(f.Targets, until)
	if f.phase == atTarget {
		f.phase = running
		return nil
	}
	f.phase = queued
	d.waiting = append(d.waiting, t)
	return nil
}

func (d *driver) clone(a tuner.Clone) error {
	f, err := d.known(a.Trial, a.Reason)
	if err != nil {
		return err
	}
	if a.Source < 0 || int(a.Source) >= len(d.Trials) || a.Source == a.Trial {
		return errors.New("the source does not exist")
	}
	if a.Config == nil {
		return errors.New("no configuration")
	}
	if err := d.start(a.Trial, f, a.UntilStep); err != nil {
		return err
	}
	if f.Step = d.Trials[a.Source].Step; f.Step >= a.UntilStep {
		return fmt.Errorf("the source is at step %d already", f.Step)
	}
	f.config = a.Config
	f.Clones++
	return nil
}

func (d *driver) pause(a tuner.Pause) error {
	f, err := d.known(a.Trial, a.Reason)
	if err != nil {
		return err
	}
	if f.phase != atTarget {
		return errors.New("the trial is not at its target")
	}
	d.leave(a.Trial, paused)
	return nil
}

func (d *driver) end(a tuner.End) error {
	f, err := d.known(a.Trial, a.Reason)
	if err != nil {
		return err
	}
	f.Ended, f.Completed = true, a.Completed
	d.leave(a.Trial, gone)
	d.ended = append(d.ended, a.Trial)
	return nil
}

// leave removes a trial from its worker or from the queue.
func (d *driver) leave(t tuner.Trial, p phase) {
	same := func(other tuner.Trial) bool { return other == t }
	switch d.Trials[t].phase {
	case running, atTarget:
		d.busy = slices.DeleteFunc(d.busy, same)
	case queued:
		d.waiting = slices.DeleteFunc(d.waiting, same)
	}
	d.Trials[t].phase = p
}

// atEnd checks that an exhausted tuner has ended all trials.
func (d *driver) atEnd() error {
	if d.o.MaxTrials > 0 && len(d.Trials) >= d.o.MaxTrials {
		return nil
	}
	if s := d.tuner.Status(); !s.Exhausted {
		return fmt.Errorf("no trial is running, but the tuner is not exhausted: %+v", s)
	}
	for t := range d.Trials {
		if !d.Trials[t].Ended {
			return fmt.Errorf("the tuner is exhausted, but trial %d is left paused", t)
		}
	}
	return nil
}
