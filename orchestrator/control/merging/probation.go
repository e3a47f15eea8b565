package merging

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/outbid-dev/outbid/orchestrator/control/trials"
	"github.com/outbid-dev/outbid/orchestrator/fork"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// If a sweep's forks_merge is best, an average is on probation: its first reported metric, by any fork that started
// from it, must not be worse than that of the best fork when it saved. Otherwise the trial continues from the
// checkpoint of that fork.
//
// A step is work that was done, whatever its weights became. So the steps of a fork slot still count if its average
// is dropped, and the trial keeps its step. Steps trained from the dropped average do not count, because nothing of
// them remains.

// dropsInARow is the number of dropped averages in a row after which a trial is not forked any more.
const dropsInARow = 2

// Counts counts the averages of forks, and the verdicts on those that were on probation.
type Counts struct{ Averaged, Kept, Dropped int }

// doubt puts the average of a fork slot that has ended on probation, if one of its forks reported a metric to compare
// it with.
func (mg *Merging) doubt(s *state.Sweep, t *state.Trial, slot *fork.Slot, average *outbidv1.Checkpoint) {
	if !s.Terms.Merge.Best || slot.Void || t.From().GetKey() != average.GetKey() {
		return
	}
	var saved []*outbidv1.Checkpoint
	for _, p := range slot.Sources() {
		saved = append(saved, p.Saved)
	}
	best := state.BestOf(saved, s.Maximise())
	if best == nil {
		return
	}
	instead := proto.CloneOf(best)
	instead.Step = average.GetStep()
	mg.judge(&outbidv1.MergeJudged{
		Sweep: s.ID, Trial: t.Number, Verdict: outbidv1.MergeVerdict_MERGE_VERDICT_PENDING, Round: t.Slots, Key: average.GetKey(),
		Best: best.GetMetric(), BestLeaseId: best.GetLeaseId(), Checkpoint: instead, Reason: "waits for its first report",
	})
}

func (mg *Merging) judge(e *outbidv1.MergeJudged) {
	switch e.GetVerdict() {
	case outbidv1.MergeVerdict_MERGE_VERDICT_KEPT:
		mg.counts.Kept++
	case outbidv1.MergeVerdict_MERGE_VERDICT_DROPPED:
		mg.counts.Dropped++
	}
	mg.core.Emit(&outbidv1.Event{Kind: &outbidv1.Event_MergeJudged{MergeJudged: e}})
}

// verdict returns the event that ends an average's probation.
func verdict(t *state.Trial, how outbidv1.MergeVerdict, reason string) *outbidv1.MergeJudged {
	e := proto.CloneOf(t.Probation)
	e.Verdict, e.Reason = how, reason
	if how == outbidv1.MergeVerdict_MERGE_VERDICT_KEPT {
		e.Checkpoint = nil
	}
	return e
}

// AcceptAverage accepts an average whose metric was never reported, because what was trained from it counts by now.
func (mg *Merging) AcceptAverage(t *state.Trial) {
	if t.Probation != nil {
		mg.judge(verdict(t, outbidv1.MergeVerdict_MERGE_VERDICT_KEPT, "it was not judged by a report"))
	}
}

// JudgeReport compares the first report of an average with the best fork's metric. It reports whether the average,
// and the report with it, is dropped.
func (mg *Merging) JudgeReport(s *state.Sweep, t *state.Trial, r *outbidv1.Report) (dropped bool) {
	value, has := r.GetMetrics()[s.Spec.GetMetric()]
	if t.Probation == nil || !has {
		return false
	}
	best, name := t.Probation.GetBest(), s.Spec.GetMetric()
	if worse := !state.Finite(value) || value != best && (value < best) == s.Maximise(); !worse {
		e := verdict(t, outbidv1.MergeVerdict_MERGE_VERDICT_KEPT, fmt.Sprintf("%s is %s; that of the best fork was %g", name, trials.ValueText(value), best))
		e.Metric = &value
		mg.judge(e)
		mg.trials.Drop(s, t)
		return false
	}
	e := verdict(t, outbidv1.MergeVerdict_MERGE_VERDICT_DROPPED, fmt.Sprintf("%s is %s; that of the best fork was %g", name, trials.ValueText(value), best))
	again := "it is trained by one process before it is forked again"
	if e.Metric, e.Again = &value, outbidv1.ForkAgain_FORK_AGAIN_LATER; t.DroppedMerges+1 >= dropsInARow {
		e.Again, again = outbidv1.ForkAgain_FORK_AGAIN_NEVER, fmt.Sprintf("it is not forked again, because %d in a row were dropped", t.DroppedMerges+1)
	}
	mg.judge(e)
	mg.core.Note(s.ID, &t.Number, "warning", "the average of fork slot %d is dropped: %s. It continues from the best fork's checkpoint, still at step %d; %s",
		e.GetRound(), e.GetReason(), e.GetCheckpoint().GetStep(), again)
	mg.trials.Revoke(s, t, outbidv1.RevokeKind_REVOKE_KIND_STOP, "the average that it started from is dropped")
	mg.core.Touch(s.ID)
	mg.trials.Drop(s, t)
	return true
}
