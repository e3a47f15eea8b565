package sweeps

import (
	"fmt"
	"slices"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// endsPerStep limits how many trials of a sweep end in one step, to keep batches small. The others end in the next
// steps.
const endsPerStep = 2000

// Advance does what a sweep's state requires: it ends trials, applies limits and finishes the sweep.
func (sw *Sweeps) Advance(s *state.Sweep) {
	sw.merging.Advance(s)
	switch s.State {
	case outbidv1.SweepState_SWEEP_STATE_STOPPING:
		sw.finishStopping(s)
	case outbidv1.SweepState_SWEEP_STATE_RUNNING:
		reason := sw.limitReached(s)
		if s.Admission.GetKind() == outbidv1.AdmissionKind_ADMISSION_KIND_REJECTED {
			reason = s.Admission.GetText()
		}
		if reason != "" {
			sw.Change(s, outbidv1.SweepState_SWEEP_STATE_STOPPING, reason, "")
			return
		}
		sw.answerWaiting(s)
		sw.finishExhausted(s)
	}
}

// Tick applies the passing of time to the sweeps that need it.
func (sw *Sweeps) Tick() {
	for _, s := range slices.Clone(sw.st.Live) {
		if s.State == outbidv1.SweepState_SWEEP_STATE_STOPPING || bounded(s) || sw.tuning.AnyHeld(s) {
			sw.core.Touch(s.ID)
		}
		if s.Spec.GetExternal() != nil {
			sw.expireClients(s)
		}
	}
}

// answerWaiting pauses trials that reached their target if their tuner has not decided about them.
func (sw *Sweeps) answerWaiting(s *state.Sweep) {
	for _, n := range slices.Clone(s.Running) {
		t := s.Trials[n]
		if t.AtTarget && !t.Pausing && !t.Done() && !sw.tuning.Held(s, t) && t.Lead().Revoking == outbidv1.RevokeKind_REVOKE_KIND_UNSPECIFIED {
			sw.trials.Pause(s, t, "waits for the other trials of its rung")
		}
	}
}

// hopelessAfter is the number of failed trials after which a sweep without any report is ended. Those before a trial was
// retried do not count.
const hopelessAfter = 5

// hopeless reports whether all trials failed without a report, which suggests a fault in the program and not in
// configurations.
func hopeless(s *state.Sweep) bool {
	failed := s.Counts[outbidv1.TrialState_TRIAL_STATE_FAILED]
	return s.Best < 0 && failed > 0 && (int(failed) == len(s.Trials) || failed >= hopelessAfter)
}

func lastFailure(s *state.Sweep) string {
	for _, t := range slices.Backward(s.Trials) {
		if t.State == outbidv1.TrialState_TRIAL_STATE_FAILED {
			return t.Reason
		}
	}
	return ""
}

// limitReached returns which limit a sweep has reached, or "".
func (sw *Sweeps) limitReached(s *state.Sweep) string {
	if hopeless(s) && s.Counts[outbidv1.TrialState_TRIAL_STATE_FAILED]-s.FailedBefore >= hopelessAfter {
		return "ended because its trials only fail: " + lastFailure(s)
	}
	return sw.boundReached(s)
}

// boundReached returns which limit on reports, steps, time or the metric a sweep has reached, or "".
func (sw *Sweeps) boundReached(s *state.Sweep) string {
	if full := sw.tenants.ReportsFull(s); full != "" {
		return full
	}
	bound := s.Spec.GetLimits()
	if bound == nil {
		return ""
	}
	if bound.Target != nil && s.Best >= 0 {
		best := s.Trials[s.Best].Best
		if best == bound.GetTarget() || (best > bound.GetTarget()) == s.Maximise() {
			return fmt.Sprintf("target reached: trial %d has %s %g", s.Best, s.Spec.GetMetric(), best)
		}
	}
	if bound.GetSteps() > 0 && s.Steps >= bound.GetSteps() {
		return fmt.Sprintf("limit reached: %d of %d steps trained", s.Steps, bound.GetSteps())
	}
	if end := wallEnd(s); !end.IsZero() && !sw.core.Now().Before(end) {
		return fmt.Sprintf("limit reached: %s have passed", bound.GetWallTime())
	}
	if hours := bound.GetDeviceHours(); hours > 0 && s.DeviceSecondsAt(sw.core.Now()) >= hours*3600 {
		return fmt.Sprintf("limit reached: %g device-hours used", hours)
	}
	if most := bound.GetCost(); most > 0 && state.CostAt(s, sw.core.Now()) >= most {
		return "limit reached: cost of " + state.Amount(most, sw.st.DevicePrices())
	}
	return ""
}

// bounded reports whether the passing of time may end the sweep.
func bounded(s *state.Sweep) bool {
	l := s.Spec.GetLimits()
	return s.Terms.WallTime > 0 || (l.GetDeviceHours() > 0 || l.GetCost() > 0) && len(s.Running) > 0
}

// wallEnd returns when the sweep's wall time is over, or zero for never.
func wallEnd(s *state.Sweep) time.Time {
	if s.Terms.WallTime == 0 {
		return time.Time{}
	}
	return s.Submitted.Add(s.Terms.WallTime)
}

// finishExhausted ends an idle sweep whose tuner is exhausted.
func (sw *Sweeps) finishExhausted(s *state.Sweep) {
	t := sw.tuning.Tuner(s.ID)
	if t == nil || len(s.Queued) > 0 || len(s.Running) > 0 || len(s.Forked) > 0 || !t.Status().Exhausted {
		return
	}
	if !sw.endOpen(s, outbidv1.TrialState_TRIAL_STATE_STOPPED, "was not promoted", true) {
		sw.core.TouchLater(s.ID)
		return
	}
	end := outbidv1.SweepState_SWEEP_STATE_DONE
	reason := fmt.Sprintf("the tuner finished after %d trials", len(s.Trials))
	if hopeless(s) {
		end, reason = outbidv1.SweepState_SWEEP_STATE_FAILED, "every trial failed: "+lastFailure(s)
	}
	sw.Change(s, end, reason, "")
}

// finishStopping ends a stopping sweep's trials and, once it holds no devices, the sweep. A sweep that a person stops
// may be resumed: its trials save first, while their reports still count, and end once their devices are free.
func (sw *Sweeps) finishStopping(s *state.Sweep) {
	state, reason := outbidv1.TrialState_TRIAL_STATE_STOPPED, s.Reason
	if s.StopActor != "" {
		state = outbidv1.TrialState_TRIAL_STATE_CANCELLED
		for _, n := range slices.Clone(s.Running) {
			sw.trials.Revoke(s, s.Trials[n], outbidv1.RevokeKind_REVOKE_KIND_PAUSE, "the sweep is stopped, "+reason)
		}
		if len(s.Running) > 0 || len(s.Forked) > 0 {
			return
		}
	}
	if !sw.endOpen(s, state, reason, false) {
		sw.core.TouchLater(s.ID)
		return
	}
	if len(s.Running) > 0 || len(s.Forked) > 0 {
		return
	}
	end := outbidv1.SweepState_SWEEP_STATE_DONE
	switch {
	case s.StopActor != "":
		end = outbidv1.SweepState_SWEEP_STATE_STOPPED
	case sw.tuning.Tuner(s.ID) == nil || hopeless(s):
		end = outbidv1.SweepState_SWEEP_STATE_FAILED
	}
	sw.Change(s, end, reason, s.StopActor)
}

// endOpen ends the sweep's open trials, at most endsPerStep in one step, and reports whether none is left.
func (sw *Sweeps) endOpen(s *state.Sweep, end outbidv1.TrialState, reason string, byTuner bool) bool {
	open := s.Counts[outbidv1.TrialState_TRIAL_STATE_QUEUED] + s.Counts[outbidv1.TrialState_TRIAL_STATE_RUNNING] +
		s.Counts[outbidv1.TrialState_TRIAL_STATE_PAUSED]
	if open == 0 {
		return true
	}
	if sw.core.Events() > endsPerStep || sw.core.Full() {
		return false
	}
	for _, t := range s.Trials {
		if t.Done() {
			continue
		}
		sw.core.MarkBatchEnd()
		sw.trials.End(s, t, end, reason, byTuner)
		if open--; open == 0 || sw.core.Failed() {
			return true
		}
		if sw.core.Events() > endsPerStep || sw.core.Full() {
			return false
		}
	}
	return true
}
