// Package trials applies what happens to trials and their leases: reports, checkpoints, targets, failures and ends.
package trials

import (
	"time"

	"github.com/outbid-dev/outbid/orchestrator/control/faults"
	"github.com/outbid-dev/outbid/orchestrator/objects"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Core is the part of the core that this package needs.
type Core interface {
	// Now returns the time of the current step.
	Now() time.Time
	// Emit decides an event.
	Emit(e *outbidv1.Event)
	// Note adds a line for the user to the log of a sweep or a trial.
	Note(sweep string, trial *int32, level, format string, args ...any)
	// Touch makes the core advance a sweep before the step ends.
	Touch(sweep string)
	// Delete deletes objects once the step's events are in the ledger.
	Delete(keys ...string)
	// OrdersDue makes the core send a node orders at the end of the step.
	OrdersDue(node string)
}

// Averages judges the averages of forks.
type Averages interface {
	// AcceptAverage accepts the trial's average if no report has judged it.
	AcceptAverage(t *state.Trial)
	// JudgeReport judges the trial's average by a report. It reports whether the average, and the report, is dropped.
	JudgeReport(s *state.Sweep, t *state.Trial, r *outbidv1.Report) (dropped bool)
}

// Meter measures the reports of tenants.
type Meter interface {
	CountReport(s *state.Sweep, r *outbidv1.Report)
}

// Trials decides about single trials. All that it knows is in the state.
type Trials struct {
	core     Core
	st       *state.State
	faults   *faults.Faults
	averages Averages
	meter    Meter
	// mayReportNothing accepts trials that never report their sweep's metric.
	mayReportNothing bool
}

// New returns the Trials of a core that decides on a state. Use must be called before the first event.
func New(core Core, st *state.State, f *faults.Faults, mayReportNothing bool) *Trials {
	return &Trials{core: core, st: st, faults: f, mayReportNothing: mayReportNothing}
}

// Use sets the other parts of the core that trials need, which themselves need trials.
func (ts *Trials) Use(averages Averages, meter Meter) { ts.averages, ts.meter = averages, meter }

// Pause takes a trial off its devices until its tuner continues it.
func (ts *Trials) Pause(s *state.Sweep, t *state.Trial, reason string) {
	if t.State == outbidv1.TrialState_TRIAL_STATE_PAUSED || t.Pausing {
		return
	}
	ts.core.Emit(&outbidv1.Event{Kind: &outbidv1.Event_TrialPaused{TrialPaused: &outbidv1.TrialPaused{
		Sweep: s.ID, Trial: t.Number, Reason: reason,
	}}})
	ts.Revoke(s, t, outbidv1.RevokeKind_REVOKE_KIND_PAUSE, reason)
}

// End ends a trial and frees what it holds.
func (ts *Trials) End(s *state.Sweep, t *state.Trial, end outbidv1.TrialState, reason string, byTuner bool) {
	if lack := ts.lacksMetric(s, t); lack != "" && (end == outbidv1.TrialState_TRIAL_STATE_COMPLETED ||
		end == outbidv1.TrialState_TRIAL_STATE_STOPPED && byTuner && t.LeaseCount > 0) {
		ts.core.Note(s.ID, &t.Number, "error", "failed for good: %s", lack)
		end, reason = outbidv1.TrialState_TRIAL_STATE_FAILED, lack+" ("+reason+")"
	}
	if end != outbidv1.TrialState_TRIAL_STATE_CANCELLED {
		ts.averages.AcceptAverage(t)
	}
	ts.core.Emit(&outbidv1.Event{Kind: &outbidv1.Event_TrialEnded{TrialEnded: &outbidv1.TrialEnded{
		Sweep: s.ID, Trial: t.Number, State: end, Reason: reason, ByTuner: byTuner,
		Resumable: end == outbidv1.TrialState_TRIAL_STATE_CANCELLED,
	}}})
	how := outbidv1.RevokeKind_REVOKE_KIND_STOP
	if (!byTuner || t.Number == s.Best) && end != outbidv1.TrialState_TRIAL_STATE_FAILED {
		how = outbidv1.RevokeKind_REVOKE_KIND_PAUSE // a limit or a person ended it, or it is the best: save it
	}
	ts.Revoke(s, t, how, reason)
	ts.Drop(s, t)
}

// Drop deletes the checkpoints of a trial that are no longer needed.
func (ts *Trials) Drop(s *state.Sweep, t *state.Trial) {
	for _, ck := range s.Droppable(t) {
		ts.core.Emit(&outbidv1.Event{Kind: &outbidv1.Event_CheckpointDropped{CheckpointDropped: &outbidv1.CheckpointDropped{
			Sweep: s.ID, Trial: t.Number, Key: ck.GetKey(),
		}}})
		ts.deleteObjects(ck)
	}
}

// deleteObjects deletes a checkpoint from the store. The manifest of shards goes first, so that no reader finds it
// without them.
func (ts *Trials) deleteObjects(ck *outbidv1.Checkpoint) {
	ts.core.Delete(ck.GetKey())
	for rank := range ck.GetShards() {
		ts.core.Delete(objects.ShardKey(ck.GetKey(), rank))
	}
	if ck.GetOuter() != nil {
		ts.core.Delete(objects.OuterKey(ck.GetKey()))
	}
}
