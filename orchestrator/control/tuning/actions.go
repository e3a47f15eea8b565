package tuning

import (
	"fmt"

	"github.com/outbid-dev/outbid/orchestrator/limits"
	"github.com/outbid-dev/outbid/orchestrator/state"
	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/space"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

func (tu *Tuning) tunerFailed(s *state.Sweep, err error) {
	if t := tu.Remote(s.ID); t != nil {
		q, open := t.Next()
		if !open {
			q.Number = t.Answered()
		}
		tu.core.Emit(tunerAnswered(s.ID, q.Number, nil, err.Error()))
	}
	tu.dropTuner(s)
	if s.Done() || s.State == outbidv1.SweepState_SWEEP_STATE_STOPPING {
		return
	}
	tu.core.Note(s.ID, nil, "error", "the tuner failed: %v", err)
	tu.sweeps.Change(s, outbidv1.SweepState_SWEEP_STATE_STOPPING, fmt.Sprintf("the tuner failed: %v", err), "")
}

// act turns a tuner's actions into events. A sweep that is ending ignores them. But a sweep that a person stops may
// be resumed, so it still follows its tuner.
func (tu *Tuning) act(s *state.Sweep, actions []tuner.Action) {
	for _, a := range actions {
		if s.State == outbidv1.SweepState_SWEEP_STATE_STOPPING && s.StopActor == "" || s.Done() {
			return
		}
		if err := tu.actOne(s, a); err != nil {
			tu.tunerFailed(s, err)
			return
		}
	}
}

func (tu *Tuning) actOne(s *state.Sweep, action tuner.Action) error {
	if overtaken(tu.Remote(s.ID), action) {
		return nil
	}
	switch a := action.(type) {
	case tuner.Create:
		return tu.create(s, a)
	case tuner.Train:
		t, err := trainable(s, a.Trial)
		if err != nil {
			return err
		}
		if t.UntilStep != 0 && a.UntilStep <= t.UntilStep {
			return fmt.Errorf("trial %d: the tuner's new target must be beyond step %d, got %d", a.Trial, t.UntilStep, a.UntilStep)
		}
		tu.core.Emit(&outbidv1.Event{Kind: &outbidv1.Event_TrialTargeted{TrialTargeted: &outbidv1.TrialTargeted{
			Sweep: s.ID, Trial: t.Number, UntilStep: a.UntilStep, Reason: a.Reason, Reopens: t.Done() && len(t.Leases) > 0,
		}}})
		tu.trials.TellForks(s, t)
	case tuner.Pause:
		t, err := live(s, a.Trial, "pause")
		if err != nil {
			return err
		}
		tu.trials.Pause(s, t, a.Reason)
	case tuner.End:
		t, err := live(s, a.Trial, "end")
		if err != nil {
			return err
		}
		end := outbidv1.TrialState_TRIAL_STATE_STOPPED
		if a.Completed {
			end = outbidv1.TrialState_TRIAL_STATE_COMPLETED
		}
		tu.trials.End(s, t, end, a.Reason, true)
	case tuner.Clone:
		return tu.clone(s, a)
	default:
		return fmt.Errorf("unknown action %T", action)
	}
	return nil
}

// live returns the unfinished trial that an action names.
func live(s *state.Sweep, n tuner.Trial, what string) (*state.Trial, error) {
	t, err := s.Trial(int32(n))
	if err != nil {
		return nil, fmt.Errorf("cannot %s trial %d: it does not exist", what, n)
	}
	if t.Retries > 0 {
		return nil, fmt.Errorf("cannot %s trial %d: it had failed, and a person retried it", what, n)
	}
	if t.Done() {
		return nil, fmt.Errorf("cannot %s trial %d: it is %s", what, n, state.TrialWord(t.State))
	}
	return t, nil
}

// trainable returns the trial that a Train action names. It has not ended, or it completed before the sweep was
// extended with longer training; such a trial restarts from step 0 if its checkpoint was not kept.
func trainable(s *state.Sweep, n tuner.Trial) (*state.Trial, error) {
	t, err := s.Trial(int32(n))
	if err == nil && t.State == outbidv1.TrialState_TRIAL_STATE_COMPLETED && t.Retries == 0 {
		return t, nil
	}
	return live(s, n, "train on")
}

// canonical returns a configuration as the ledger stores it. A configuration that is too large is an error of the
// tuner.
func canonical(trial int, made space.Config) (string, error) {
	config, err := space.Canonical(made)
	if err == nil && len(config) > limits.Config {
		err = fmt.Errorf("must have at most %d bytes, got %d", limits.Config, len(config))
	}
	if err != nil {
		return "", fmt.Errorf("configuration of trial %d: %w", trial, err)
	}
	return config, nil
}

func (tu *Tuning) create(s *state.Sweep, a tuner.Create) error {
	config, err := canonical(len(s.Trials), a.Config)
	if err != nil {
		return err
	}
	tu.core.Emit(&outbidv1.Event{Kind: &outbidv1.Event_TrialCreated{TrialCreated: &outbidv1.TrialCreated{
		Sweep: s.ID, Trial: int32(len(s.Trials)), ConfigJson: config, UntilStep: a.UntilStep, Reason: a.Reason,
		Bracket: int32(a.Bracket), Seed: a.Seed,
	}}})
	return nil
}

func (tu *Tuning) clone(s *state.Sweep, a tuner.Clone) error {
	t, err := live(s, a.Trial, "clone into")
	if err != nil {
		return err
	}
	if _, err := s.Trial(int32(a.Source)); err != nil {
		return fmt.Errorf("cannot clone trial %d: it does not exist", a.Source)
	}
	config, err := canonical(int(a.Trial), a.Config)
	if err != nil {
		return err
	}
	tu.core.Emit(&outbidv1.Event{Kind: &outbidv1.Event_TrialCloned{TrialCloned: &outbidv1.TrialCloned{
		Sweep: s.ID, Trial: t.Number, Source: int32(a.Source), ConfigJson: config, UntilStep: a.UntilStep, Reason: a.Reason,
	}}})
	tu.trials.Revoke(s, t, outbidv1.RevokeKind_REVOKE_KIND_STOP, a.Reason)
	return nil
}
