package sweeps

import (
	"fmt"

	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// StopTrial ends one trial; its reports count. The tuner is notified that it exited, and continues with others.
func (sw *Sweeps) StopTrial(id string, trial int32, reason, actor string) error {
	s, err := sw.st.Sweep(id)
	if err != nil {
		return err
	}
	t, err := s.Trial(trial)
	if err != nil || t.Done() {
		return err
	}
	if s.State == outbidv1.SweepState_SWEEP_STATE_STOPPING || s.Done() {
		return nil // its sweep ends it
	}
	sw.trials.End(s, t, outbidv1.TrialState_TRIAL_STATE_STOPPED, askedFor(actor, reason), false)
	sw.Advance(s)
	return nil
}

// RetryTrial queues a failed trial again, from its newest checkpoint until the target that it had. Its tuner knows that
// it failed and is not notified of the retry: only the sweep's results include its reports. A sweep that has ended by
// itself continues.
func (sw *Sweeps) RetryTrial(id string, trial int32, reason, actor string) error {
	s, err := sw.st.Sweep(id)
	if err != nil {
		return err
	}
	t, err := s.Trial(trial)
	if err != nil {
		return err
	}
	if t.Retries > 0 && !t.Done() {
		return nil // the same command was sent twice
	}
	if err := mayRetry(s, t); err != nil {
		return err
	}
	if s.Done() {
		if err := sw.mayContinue(s); err != nil {
			return err
		}
	}
	sw.core.Emit(&outbidv1.Event{Kind: &outbidv1.Event_TrialRetried{TrialRetried: &outbidv1.TrialRetried{
		Sweep: s.ID, Trial: t.Number, Reason: "retried, " + askedFor(actor, reason), Actor: actor,
	}}})
	return nil
}

// mayRetry returns why a trial cannot be retried, or nil if it can.
func mayRetry(s *state.Sweep, t *state.Trial) error {
	switch {
	case s.State == outbidv1.SweepState_SWEEP_STATE_STOPPING:
		return s.Conflict("continued with a retry", "wait until it has ended")
	case s.State == outbidv1.SweepState_SWEEP_STATE_STOPPED:
		return s.Conflict("continued with a retry", "resume it first")
	case t.State != outbidv1.TrialState_TRIAL_STATE_FAILED:
		return fmt.Errorf("%w: trial: must be one that has failed, but trial %d of sweep %s is %s", state.ErrConflict, t.Number, s.ID,
			state.TrialWord(t.State))
	case len(t.Leases) > 0 || t.Slot != nil:
		return fmt.Errorf("%w: trial: the processes of trial %d of sweep %s are still ending; retry it in a moment", state.ErrConflict,
			t.Number, s.ID)
	}
	return nil
}

// mayContinue returns why a sweep that has ended cannot continue for a retry, or nil if it can. It restores the sweep's
// tuner.
func (sw *Sweeps) mayContinue(s *state.Sweep) error {
	if reached := sw.boundReached(s); reached != "" {
		return s.Conflict("continued with a retry", reached+"; extend it with a higher limit first")
	}
	if err := sw.tenants.MayBegin(s.Spec); err != nil {
		return err
	}
	return sw.tuning.Wake(s, "continued with a retry")
}

// askedFor returns the reason of a command that a user gave.
func askedFor(actor, reason string) string {
	by := "asked for by " + actor
	if reason != "" {
		by += ": " + reason
	}
	return by
}
