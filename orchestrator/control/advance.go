package control

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// endsPerStep limits how many trials of a sweep end in one step, to keep batches small. The others end in the next
// steps.
const endsPerStep = 2000

// advance does what a sweep's state requires: it ends trials, applies limits and finishes the sweep.
func (c *Core) advance(s *state.Sweep) {
	c.advanceForks(s)
	switch s.State {
	case outbidv1.SweepState_SWEEP_STATE_STOPPING:
		c.finishStopping(s)
	case outbidv1.SweepState_SWEEP_STATE_RUNNING:
		reason := c.limitReached(s)
		if s.Admission.GetKind() == outbidv1.AdmissionKind_ADMISSION_KIND_REJECTED {
			reason = s.Admission.GetText()
		}
		if reason != "" {
			c.changeSweep(s, outbidv1.SweepState_SWEEP_STATE_STOPPING, reason, "")
			return
		}
		c.answerWaiting(s)
		c.finishExhausted(s)
	}
}

// answerWaiting pauses trials that reached their target if their tuner has not decided about them.
func (c *Core) answerWaiting(s *state.Sweep) {
	for _, n := range slices.Clone(s.Running) {
		t := s.Trials[n]
		if t.AtTarget && !t.Pausing && !t.Done() && !c.held(s, t) && t.Lead().Revoking == outbidv1.RevokeKind_REVOKE_KIND_UNSPECIFIED {
			c.pause(s, t, "waits for the other trials of its rung")
		}
	}
}

// hopelessAfter is the number of failed trials after which a sweep without any report is ended.
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
func (c *Core) limitReached(s *state.Sweep) string {
	if hopeless(s) && s.Counts[outbidv1.TrialState_TRIAL_STATE_FAILED] >= hopelessAfter {
		return "ended because its trials only fail: " + lastFailure(s)
	}
	if full := c.reportsFull(s); full != "" {
		return full
	}
	limits := s.Spec.GetLimits()
	if limits == nil {
		return ""
	}
	if limits.Target != nil && s.Best >= 0 {
		best := s.Trials[s.Best].Best
		if best == limits.GetTarget() || (best > limits.GetTarget()) == s.Maximise() {
			return fmt.Sprintf("target reached: trial %d has %s %g", s.Best, s.Spec.GetMetric(), best)
		}
	}
	if limits.GetSteps() > 0 && s.Steps >= limits.GetSteps() {
		return fmt.Sprintf("limit reached: %d of %d steps trained", s.Steps, limits.GetSteps())
	}
	if end := wallEnd(s); !end.IsZero() && !c.now.Before(end) {
		return fmt.Sprintf("limit reached: %s have passed", limits.GetWallTime())
	}
	return ""
}

// wallEnd returns when the sweep's wall time is over, or zero for never.
func wallEnd(s *state.Sweep) time.Time {
	if s.Terms.WallTime == 0 {
		return time.Time{}
	}
	return s.Submitted.Add(s.Terms.WallTime)
}

// finishExhausted ends an idle sweep whose tuner is exhausted.
func (c *Core) finishExhausted(s *state.Sweep) {
	t := c.tuners[s.ID]
	if t == nil || len(s.Queued) > 0 || len(s.Running) > 0 || len(s.Forked) > 0 || !t.Status().Exhausted {
		return
	}
	if !c.endOpen(s, outbidv1.TrialState_TRIAL_STATE_STOPPED, "was not promoted", true) {
		c.later[s.ID] = true
		return
	}
	end := outbidv1.SweepState_SWEEP_STATE_DONE
	reason := fmt.Sprintf("the tuner finished after %d trials", len(s.Trials))
	if hopeless(s) {
		end, reason = outbidv1.SweepState_SWEEP_STATE_FAILED, "every trial failed: "+lastFailure(s)
	}
	c.changeSweep(s, end, reason, "")
}

// finishStopping ends a stopping sweep's trials and, once it holds no devices, the sweep. A sweep that a person stops
// may be resumed: its trials save first, while their reports still count, and end once their devices are free.
func (c *Core) finishStopping(s *state.Sweep) {
	state, reason := outbidv1.TrialState_TRIAL_STATE_STOPPED, s.Reason
	if s.StopActor != "" {
		state = outbidv1.TrialState_TRIAL_STATE_CANCELLED
		for _, n := range slices.Clone(s.Running) {
			c.revoke(s, s.Trials[n], outbidv1.RevokeKind_REVOKE_KIND_PAUSE, "the sweep is stopped, "+reason)
		}
		if len(s.Running) > 0 || len(s.Forked) > 0 {
			return
		}
	}
	if !c.endOpen(s, state, reason, false) {
		c.later[s.ID] = true
		return
	}
	if len(s.Running) > 0 || len(s.Forked) > 0 {
		return
	}
	end := outbidv1.SweepState_SWEEP_STATE_DONE
	switch {
	case s.StopActor != "":
		end = outbidv1.SweepState_SWEEP_STATE_STOPPED
	case c.tuners[s.ID] == nil || hopeless(s):
		end = outbidv1.SweepState_SWEEP_STATE_FAILED
	}
	c.changeSweep(s, end, reason, s.StopActor)
}

// endOpen ends the sweep's open trials, at most endsPerStep in one step, and reports whether none is left.
func (c *Core) endOpen(s *state.Sweep, end outbidv1.TrialState, reason string, byTuner bool) bool {
	open := s.Counts[outbidv1.TrialState_TRIAL_STATE_QUEUED] + s.Counts[outbidv1.TrialState_TRIAL_STATE_RUNNING] +
		s.Counts[outbidv1.TrialState_TRIAL_STATE_PAUSED]
	if open == 0 {
		return true
	}
	if len(c.out.Events) > endsPerStep || c.full() {
		return false
	}
	for _, t := range s.Trials {
		if t.Done() {
			continue
		}
		c.markBatchEnd()
		c.endTrial(s, t, end, reason, byTuner)
		if open--; open == 0 || c.err != nil {
			return true
		}
		if len(c.out.Events) > endsPerStep || c.full() {
			return false
		}
	}
	return true
}

func (c *Core) changeSweep(s *state.Sweep, to outbidv1.SweepState, reason, actor string) {
	if to == outbidv1.SweepState_SWEEP_STATE_STOPPING {
		c.out.Retire = append(c.out.Retire, s.ID)
	}
	changed := &outbidv1.SweepChanged{Sweep: s.ID, State: to, Reason: reason, Actor: actor}
	if to != outbidv1.SweepState_SWEEP_STATE_STOPPING && to != outbidv1.SweepState_SWEEP_STATE_RUNNING &&
		to != outbidv1.SweepState_SWEEP_STATE_PAUSED && c.set.Fairness != nil {
		changed.Fairness = c.fairness(c.views.refresh(c), s, true)
	}
	c.emit(&outbidv1.Event{Kind: &outbidv1.Event_SweepChanged{SweepChanged: changed}})
	if s.Done() {
		c.forgetFaults(s)
	}
}

// fairness returns how a sweep fares in a view, or nil if the sweep is not in it or fairness is not measured.
func (c *Core) fairness(v *policy.View, s *state.Sweep, over bool) *outbidv1.Fairness {
	at := c.views.apps[s.ID]
	if at == nil || c.set.Fairness == nil {
		return nil
	}
	return c.set.Fairness(v, at.app, over)
}

// Tick applies the passing of time: silent nodes become lost, limits and timeouts apply.
type Tick struct{}

func (Tick) apply(c *Core) {
	for _, name := range c.st.NodeNames {
		c.checkNode(c.st.Nodes[name])
	}
	c.touchForked() // a fork slot may be over
	for _, s := range slices.Clone(c.st.Live) {
		if s.State == outbidv1.SweepState_SWEEP_STATE_STOPPING || s.Terms.WallTime > 0 || c.anyHeld(s) {
			c.touched[s.ID] = true
		}
		if s.Spec.GetExternal() != nil {
			c.expireClients(s)
		}
	}
}

// Look applies the limits of a sweep. Unlike Tick, it does not judge nodes.
type Look struct{ Sweep string }

func (in Look) apply(c *Core) {
	if s := c.st.Sweeps[in.Sweep]; s != nil && !s.Done() {
		c.touched[s.ID] = true
	}
}

// expireClients takes trials back from clients that did not report in time.
func (c *Core) expireClients(s *state.Sweep) {
	limit, text := s.Terms.ClientTimeout, s.Spec.GetExternal().GetTimeout()
	if limit == 0 {
		return
	}
	for _, n := range slices.Clone(s.Running) {
		t := s.Trials[n]
		l := t.Lead()
		if last := c.clientSeen(t, l); c.now.Sub(last) >= limit {
			c.note(s.ID, &t.Number, "warning", "client %s sent no report for %s: the trial is given to the next client that asks", l.Client, text)
			c.endLease(s, t, l, "its client sent no report for "+text)
		}
	}
}

func (c *Core) clientSeen(t *state.Trial, l *state.Lease) time.Time {
	seen := l.Granted
	if l.LastReportSeq > 0 && t.Last.GetTime() != nil && t.Last.GetTime().AsTime().After(seen) {
		seen = t.Last.GetTime().AsTime()
	}
	return seen
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
