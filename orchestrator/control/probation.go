package control

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/outbid-dev/outbid/orchestrator/fork"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Where a sweep's forks_merge is best, an average is on probation: the metric that is reported first of it, by any fork that
// began with it, must not be worse than the best fork's was when it saved. Otherwise the trial goes on from what that fork saved.
//
// A step is work that was done, whatever weights came of it. So the steps of a round stay counted when its average is dropped, and
// the trial stays where it was. Steps that were done since from the average are not: nothing of them is left.

// dropsInARow is after how many dropped averages a trial is not forked any more.
const dropsInARow = 2

// Merges counts the rounds of forks that were averaged, and what became of averages that were to be judged.
type Merges struct{ Averaged, Kept, Dropped int }

// doubt puts the average of a round that has ended on probation, if any of its forks reported what it is to be compared with.
func (c *Core) doubt(s *state.Sweep, t *state.Trial, r *fork.Round, average *outbidv1.Checkpoint) {
	if !s.Terms.Merge.Best || r.Void || t.From().GetKey() != average.GetKey() {
		return
	}
	var saved []*outbidv1.Checkpoint
	for _, p := range r.Sources() {
		saved = append(saved, p.Saved)
	}
	best := state.BestOf(saved, s.Maximise())
	if best == nil {
		return
	}
	instead := proto.CloneOf(best)
	instead.Step = average.GetStep()
	c.judge(&outbidv1.MergeJudged{
		Sweep: s.ID, Trial: t.Number, Verdict: outbidv1.MergeVerdict_MERGE_VERDICT_PENDING, Round: t.Rounds, Key: average.GetKey(),
		Best: best.GetMetric(), BestLeaseId: best.GetLeaseId(), Checkpoint: instead, Reason: "its first report is waited for",
	})
}

func (c *Core) judge(e *outbidv1.MergeJudged) {
	switch e.GetVerdict() {
	case outbidv1.MergeVerdict_MERGE_VERDICT_KEPT:
		c.out.Merges.Kept++
	case outbidv1.MergeVerdict_MERGE_VERDICT_DROPPED:
		c.out.Merges.Dropped++
	}
	c.emit(&outbidv1.Event{Kind: &outbidv1.Event_MergeJudged{MergeJudged: e}})
}

// verdict is what an average that was on probation is judged.
func verdict(t *state.Trial, how outbidv1.MergeVerdict, reason string) *outbidv1.MergeJudged {
	e := proto.CloneOf(t.Probation)
	e.Verdict, e.Reason = how, reason
	if how == outbidv1.MergeVerdict_MERGE_VERDICT_KEPT {
		e.Checkpoint = nil
	}
	return e
}

// undoubted keeps an average that nothing was reported of: what was made of it counts by now.
func (c *Core) undoubted(t *state.Trial) {
	if t.Probation != nil {
		c.judge(verdict(t, outbidv1.MergeVerdict_MERGE_VERDICT_KEPT, "nothing was reported of it alone"))
	}
}

// judged compares the first report of an average with the best fork's; true if it is dropped, and the report with it.
func (c *Core) judged(s *state.Sweep, t *state.Trial, r *outbidv1.Report) (dropped bool) {
	value, has := r.GetMetrics()[s.Spec.GetMetric()]
	if t.Probation == nil || !has {
		return false
	}
	best, name := t.Probation.GetBest(), s.Spec.GetMetric()
	if worse := !state.Finite(value) || value != best && (value < best) == s.Maximise(); !worse {
		e := verdict(t, outbidv1.MergeVerdict_MERGE_VERDICT_KEPT, fmt.Sprintf("%s is %s, and was %g at the best fork", name, shortly(value), best))
		e.Metric = &value
		c.judge(e)
		c.drop(s, t)
		return false
	}
	e := verdict(t, outbidv1.MergeVerdict_MERGE_VERDICT_DROPPED, fmt.Sprintf("%s is %s, and was %g at the best fork", name, shortly(value), best))
	again := "is trained by one process before it is forked again"
	if e.Metric, e.Again = &value, outbidv1.ForkAgain_FORK_AGAIN_LATER; t.DroppedMerges+1 >= dropsInARow {
		e.Again, again = outbidv1.ForkAgain_FORK_AGAIN_NEVER, fmt.Sprintf("is not forked again, as that is %d in a row", t.DroppedMerges+1)
	}
	c.judge(e)
	c.note(s.ID, &t.Number, "warning", "the average of round %d of forks is dropped, as %s: it goes on from the best fork's checkpoint, at step %d still, and %s",
		e.GetRound(), e.GetReason(), e.GetCheckpoint().GetStep(), again)
	c.revoke(s, t, outbidv1.RevokeKind_REVOKE_KIND_STOP, "the average that it began with is dropped")
	c.touched[s.ID] = true
	c.drop(s, t)
	return true
}

// shortly is a value in a line for people.
func shortly(v float64) string {
	if state.Finite(v) {
		return fmt.Sprintf("%g", v)
	}
	return unbounded(v)
}
