package trials

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/outbid-dev/outbid/orchestrator/limits"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Report records a report of a fork. It ignores those that were recorded before.
func (ts *Trials) Report(s *state.Sweep, t *state.Trial, l *state.Lease, r *outbidv1.Report) {
	if r.GetSeq() <= l.LastReportSeq || t.Done() || l.Void || ts.refuseReport(s, t, r) || ts.averages.JudgeReport(s, t, r) {
		return
	}
	if l == t.Lead() {
		ts.warnOfMetric(s, t, r)
	}
	best, reported := s.Best, s.ReportBytes
	r.LeaseId = l.ID
	r = countForks(t, l, r)
	ts.core.Emit(&outbidv1.Event{Kind: &outbidv1.Event_TrialReported{TrialReported: &outbidv1.TrialReported{
		Sweep: s.ID, Trial: t.Number, LeaseId: l.ID, Report: r,
	}}})
	if len(t.Avoided) > 0 || len(ts.st.Faulty()) > 0 {
		ts.faults.Trained(s, t, l, false)
	}
	if best >= 0 && best != s.Best {
		ts.Drop(s, s.Trials[best])
	}
	ts.meter.CountReport(s, r)
	if most := s.Spec.GetLimits(); most != nil && (most.Target != nil || most.GetSteps() > 0) || s.ReportBytes>>20 != reported>>20 {
		ts.core.Touch(s.ID)
	}
}

// refuseReport fails a trial whose report is too large, and reports whether it was.
func (ts *Trials) refuseReport(s *state.Sweep, t *state.Trial, r *outbidv1.Report) bool {
	size := proto.Size(r)
	if size <= limits.Report {
		return false
	}
	if !t.Done() {
		reason := fmt.Sprintf("its report of step %d has %d bytes; the limit is %d", r.GetStep(), size, limits.Report)
		ts.core.Note(s.ID, &t.Number, "error", "failed for good: %s", reason)
		ts.End(s, t, outbidv1.TrialState_TRIAL_STATE_FAILED, reason, false)
	}
	return true
}

// countForks returns a report with the trial's step: the start of the fork slot plus the steps of all forks since. It
// copies the report, because the original may be sent again.
func countForks(t *state.Trial, l *state.Lease, r *outbidv1.Report) *outbidv1.Report {
	r.ForkStep = 0
	if t.Part(l) == nil {
		return r
	}
	r = proto.CloneOf(r)
	r.ForkStep = r.GetStep()
	r.Step = t.Slot.Reported(l.ID, r.ForkStep).Step()
	return r
}

// Reached records that the fork reached its target step and waits. A fork that reports an older target receives the
// new one with its next orders. A trial that was retried is complete, because its tuner decides nothing about it.
func (ts *Trials) Reached(s *state.Sweep, t *state.Trial, l *state.Lease, step int64) {
	if l.AtTarget || l.Void || t.Done() || t.Until(l) == 0 || step < t.Until(l) || t.Pausing {
		return
	}
	ts.core.Emit(&outbidv1.Event{Kind: &outbidv1.Event_TrialReached{TrialReached: &outbidv1.TrialReached{
		Sweep: s.ID, Trial: t.Number, LeaseId: l.ID, Step: step,
	}}})
	ts.faults.Trained(s, t, l, true)
	if t.Retries > 0 && t.AtTarget {
		ts.End(s, t, outbidv1.TrialState_TRIAL_STATE_COMPLETED, fmt.Sprintf("it was retried, and reached its target of step %d", t.UntilStep), false)
	}
}

// Saved records a checkpoint of a fork, and drops those that are no longer needed.
func (ts *Trials) Saved(s *state.Sweep, t *state.Trial, l *state.Lease, ck *outbidv1.Checkpoint) {
	if l.Void {
		if !slices.ContainsFunc(t.Checkpoints, func(o *outbidv1.Checkpoint) bool { return o.GetKey() == ck.GetKey() }) {
			ts.deleteObjects(ck)
		}
		return
	}
	best := s.Ranked()
	ck.LeaseId = l.ID
	ts.core.Emit(&outbidv1.Event{Kind: &outbidv1.Event_CheckpointSaved{CheckpointSaved: &outbidv1.CheckpointSaved{
		Sweep: s.ID, Trial: t.Number, Checkpoint: ck,
	}}})
	ts.Drop(s, t)
	now := s.Ranked()
	for _, n := range best {
		if !slices.Contains(now, n) {
			ts.Drop(s, s.Trials[n])
		}
	}
}
