package control

import (
	"fmt"
	"math"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/limits"
	"github.com/outbid-dev/outbid/orchestrator/objects"
	"github.com/outbid-dev/outbid/orchestrator/state"
	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/space"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// tunerEvent returns the tuner's form of an event that has been applied.
func tunerEvent(change state.Change) tuner.Event {
	s, t := change.Sweep, change.Trial
	switch k := change.Event.GetKind().(type) {
	case *outbidv1.Event_TrialReported:
		r := k.TrialReported.GetReport()
		return tuner.Reported{
			Trial: tuner.Trial(t.Number), Step: r.GetStep(),
			Metric: comparable(r.GetMetrics()[s.Spec.GetMetric()]), Metrics: r.GetMetrics(),
		}
	case *outbidv1.Event_TrialReached:
		return tuner.Reached{Trial: tuner.Trial(t.Number), Step: k.TrialReached.GetStep(), Metric: comparable(t.Metric), Metrics: t.Last.GetMetrics()}
	case *outbidv1.Event_TrialEnded:
		return tuner.Exited{
			Trial: tuner.Trial(t.Number), Step: t.Step, Metric: comparable(t.Metric),
			Failed: k.TrialEnded.GetState() == outbidv1.TrialState_TRIAL_STATE_FAILED, Metrics: t.Last.GetMetrics(),
		}
	case *outbidv1.Event_SweepExtended:
		return tuner.Extended{Settings: tuner.Settings{Spec: k.SweepExtended.GetSpec()}}
	case *outbidv1.Event_TunerAsked:
		return tuner.Ask{N: int(k.TunerAsked.GetN())}
	default:
		return nil
	}
}

// comparable returns a value for ranking: infinities become NaN, so that they rank as worst in either mode.
func comparable(v float64) float64 {
	if state.Finite(v) {
		return v
	}
	return math.NaN()
}

// ask asks the tuner for up to n trials to run.
func (c *Core) ask(s *state.Sweep, n int) {
	answer := c.consult(s, tuner.Ask{N: n})
	if answer.err == nil {
		status := c.tuners[s.ID].Status()
		if t := c.Remote(s.ID); t != nil {
			status = t.Said()
		}
		c.emit(&outbidv1.Event{Kind: &outbidv1.Event_TunerAsked{TunerAsked: &outbidv1.TunerAsked{
			Sweep: s.ID, N: int32(n), Waiting: status.Waiting, Exhausted: status.Exhausted,
		}}})
	}
	c.enqueue(answer)
}

func (c *Core) tunerFailed(s *state.Sweep, err error) {
	if t := c.Remote(s.ID); t != nil {
		q, open := t.Next()
		if !open {
			q.Number = t.Answered()
		}
		c.emit(tunerAnswered(s.ID, q.Number, nil, err.Error()))
	}
	c.dropTuner(s)
	if s.Done() || s.State == outbidv1.SweepState_SWEEP_STATE_STOPPING {
		return
	}
	c.note(s.ID, nil, "error", "the tuner failed: %v", err)
	c.changeSweep(s, outbidv1.SweepState_SWEEP_STATE_STOPPING, fmt.Sprintf("the tuner failed: %v", err), "")
}

// act turns a tuner's actions into events. A sweep that is ending ignores them. But a sweep that a person stops may
// be resumed, so it still follows its tuner.
func (c *Core) act(s *state.Sweep, actions []tuner.Action) {
	for _, a := range actions {
		if s.State == outbidv1.SweepState_SWEEP_STATE_STOPPING && s.StopActor == "" || s.Done() {
			return
		}
		if err := c.actOne(s, a); err != nil {
			c.tunerFailed(s, err)
			return
		}
	}
}

func (c *Core) actOne(s *state.Sweep, action tuner.Action) error {
	if c.overtaken(s, action) {
		return nil
	}
	switch a := action.(type) {
	case tuner.Create:
		return c.create(s, a)
	case tuner.Train:
		t, err := c.trainable(s, a.Trial)
		if err != nil {
			return err
		}
		if t.UntilStep != 0 && a.UntilStep <= t.UntilStep {
			return fmt.Errorf("trial %d: the tuner's new target must be beyond step %d, got %d", a.Trial, t.UntilStep, a.UntilStep)
		}
		c.emit(&outbidv1.Event{Kind: &outbidv1.Event_TrialTargeted{TrialTargeted: &outbidv1.TrialTargeted{
			Sweep: s.ID, Trial: t.Number, UntilStep: a.UntilStep, Reason: a.Reason, Reopens: t.Done() && len(t.Leases) > 0,
		}}})
		c.tellForks(s, t)
	case tuner.Pause:
		t, err := c.live(s, a.Trial, "pause")
		if err != nil {
			return err
		}
		c.pause(s, t, a.Reason)
	case tuner.End:
		t, err := c.live(s, a.Trial, "end")
		if err != nil {
			return err
		}
		end := outbidv1.TrialState_TRIAL_STATE_STOPPED
		if a.Completed {
			end = outbidv1.TrialState_TRIAL_STATE_COMPLETED
		}
		c.endTrial(s, t, end, a.Reason, true)
	case tuner.Clone:
		return c.clone(s, a)
	default:
		return fmt.Errorf("unknown action %T", action)
	}
	return nil
}

// live returns the unfinished trial that an action names.
func (c *Core) live(s *state.Sweep, n tuner.Trial, what string) (*state.Trial, error) {
	t, err := s.Trial(int32(n))
	if err != nil {
		return nil, fmt.Errorf("cannot %s trial %d: it does not exist", what, n)
	}
	if t.Done() {
		return nil, fmt.Errorf("cannot %s trial %d: it is %s", what, n, state.TrialWord(t.State))
	}
	return t, nil
}

// trainable returns the trial that a Train action names. It has not ended, or it completed before the sweep was
// extended with longer training; such a trial restarts from step 0 if its checkpoint was not kept.
func (c *Core) trainable(s *state.Sweep, n tuner.Trial) (*state.Trial, error) {
	t, err := s.Trial(int32(n))
	if err == nil && t.State == outbidv1.TrialState_TRIAL_STATE_COMPLETED {
		return t, nil
	}
	return c.live(s, n, "train on")
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

func (c *Core) create(s *state.Sweep, a tuner.Create) error {
	config, err := canonical(len(s.Trials), a.Config)
	if err != nil {
		return err
	}
	c.emit(&outbidv1.Event{Kind: &outbidv1.Event_TrialCreated{TrialCreated: &outbidv1.TrialCreated{
		Sweep: s.ID, Trial: int32(len(s.Trials)), ConfigJson: config, UntilStep: a.UntilStep, Reason: a.Reason,
		Bracket: int32(a.Bracket), Seed: a.Seed,
	}}})
	return nil
}

func (c *Core) clone(s *state.Sweep, a tuner.Clone) error {
	t, err := c.live(s, a.Trial, "clone into")
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
	c.emit(&outbidv1.Event{Kind: &outbidv1.Event_TrialCloned{TrialCloned: &outbidv1.TrialCloned{
		Sweep: s.ID, Trial: t.Number, Source: int32(a.Source), ConfigJson: config, UntilStep: a.UntilStep, Reason: a.Reason,
	}}})
	c.revoke(s, t, outbidv1.RevokeKind_REVOKE_KIND_STOP, a.Reason)
	return nil
}

// pause takes a trial off its devices until its tuner continues it.
func (c *Core) pause(s *state.Sweep, t *state.Trial, reason string) {
	if t.State == outbidv1.TrialState_TRIAL_STATE_PAUSED || t.Pausing {
		return
	}
	c.emit(&outbidv1.Event{Kind: &outbidv1.Event_TrialPaused{TrialPaused: &outbidv1.TrialPaused{
		Sweep: s.ID, Trial: t.Number, Reason: reason,
	}}})
	c.revoke(s, t, outbidv1.RevokeKind_REVOKE_KIND_PAUSE, reason)
}

// endTrial ends a trial and frees what it holds.
func (c *Core) endTrial(s *state.Sweep, t *state.Trial, end outbidv1.TrialState, reason string, byTuner bool) {
	if lack := c.lacksMetric(s, t); lack != "" && (end == outbidv1.TrialState_TRIAL_STATE_COMPLETED ||
		end == outbidv1.TrialState_TRIAL_STATE_STOPPED && byTuner && t.LeaseCount > 0) {
		c.note(s.ID, &t.Number, "error", "failed for good: %s", lack)
		end, reason = outbidv1.TrialState_TRIAL_STATE_FAILED, lack+" ("+reason+")"
	}
	if end != outbidv1.TrialState_TRIAL_STATE_CANCELLED {
		c.acceptAverage(t)
	}
	c.emit(&outbidv1.Event{Kind: &outbidv1.Event_TrialEnded{TrialEnded: &outbidv1.TrialEnded{
		Sweep: s.ID, Trial: t.Number, State: end, Reason: reason, ByTuner: byTuner,
		Resumable: end == outbidv1.TrialState_TRIAL_STATE_CANCELLED,
	}}})
	how := outbidv1.RevokeKind_REVOKE_KIND_STOP
	if (!byTuner || t.Number == s.Best) && end != outbidv1.TrialState_TRIAL_STATE_FAILED {
		how = outbidv1.RevokeKind_REVOKE_KIND_PAUSE // a limit or a person ended it, or it is the best: save it
	}
	c.revoke(s, t, how, reason)
	c.drop(s, t)
}

// tellForks sends a trial's forks their later target. The worker may not have been seen in this step, because a
// remote tuner answers later.
func (c *Core) tellForks(s *state.Sweep, t *state.Trial) {
	for _, l := range slices.Clone(t.Leases) {
		if l.Gang() {
			// The other processes have ended at the old target and wait there. All of them start again together.
			c.revokeLease(s, t, l, outbidv1.RevokeKind_REVOKE_KIND_PAUSE, "its gang continues from the checkpoint on all its nodes")
			continue
		}
		c.dirty(l.Rank0())
	}
}

// revoke revokes all leases of a trial.
func (c *Core) revoke(s *state.Sweep, t *state.Trial, how outbidv1.RevokeKind, reason string) {
	for _, l := range slices.Clone(t.Leases) {
		c.revokeLease(s, t, l, how, reason)
	}
}

// revokeLease asks the nodes of a lease to end its fork. A client's lease ends at once, because it has no process on
// a worker.
func (c *Core) revokeLease(s *state.Sweep, t *state.Trial, l *state.Lease, how outbidv1.RevokeKind, reason string) {
	if l.Revoking == how || l.Revoking == outbidv1.RevokeKind_REVOKE_KIND_STOP {
		return
	}
	c.emit(&outbidv1.Event{Kind: &outbidv1.Event_LeaseRevoked{LeaseRevoked: &outbidv1.LeaseRevoked{
		Sweep: s.ID, Trial: t.Number, LeaseId: l.ID, How: how, Reason: reason,
	}}})
	if l.Holder == state.Client {
		c.endLease(s, t, l, reason)
	}
}

func (c *Core) endLease(s *state.Sweep, t *state.Trial, l *state.Lease, reason string) {
	c.emit(&outbidv1.Event{Kind: &outbidv1.Event_LeaseEnded{LeaseEnded: &outbidv1.LeaseEnded{
		Sweep: s.ID, Trial: t.Number, LeaseId: l.ID, Reason: reason, DeviceSeconds: l.DeviceSeconds(c.now),
	}}})
	if t.Round == nil && t.From().GetKey() != t.Probation.GetKey() {
		c.acceptAverage(t)
	}
	c.drop(s, t)
}

// drop deletes the checkpoints of a trial that are no longer needed.
func (c *Core) drop(s *state.Sweep, t *state.Trial) {
	for _, ck := range s.Droppable(t) {
		c.emit(&outbidv1.Event{Kind: &outbidv1.Event_CheckpointDropped{CheckpointDropped: &outbidv1.CheckpointDropped{
			Sweep: s.ID, Trial: t.Number, Key: ck.GetKey(),
		}}})
		c.out.Delete = append(c.out.Delete, ck.GetKey())
		if ck.GetOuter() != nil {
			c.out.Delete = append(c.out.Delete, objects.OuterKey(ck.GetKey()))
		}
	}
}

// room returns how many more trials of a sweep may be active under its concurrency limit.
func room(s *state.Sweep) int {
	limit := int(s.Spec.GetLimits().GetConcurrency())
	if limit == 0 {
		return math.MaxInt
	}
	return limit - len(s.Running) - len(s.Queued)
}
