package state

import (
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// mergeJudged puts the average that the trial continued from on probation, keeps it, or replaces it with the best
// fork's checkpoint. If it is dropped, the trial keeps its step, but steps trained from the average do not count.
func (x *forkSlots) mergeJudged(_ time.Time, s *Sweep, t *Trial, e *outbidv1.MergeJudged) error {
	switch pending := e.GetVerdict() == outbidv1.MergeVerdict_MERGE_VERDICT_PENDING; {
	case pending && (len(t.Leases) > 0 || t.From().GetKey() != e.GetKey()):
		return broken("%q is on probation, but the trial does not continue from it", e.GetKey())
	case !pending && (t.Probation == nil || t.Probation.GetKey() != e.GetKey()):
		return broken("%q is judged, but was not on probation", e.GetKey())
	}
	t.showVerdict(e)
	t.Probation = nil
	switch e.GetVerdict() {
	case outbidv1.MergeVerdict_MERGE_VERDICT_PENDING:
		t.Probation = e
	case outbidv1.MergeVerdict_MERGE_VERDICT_KEPT:
		t.DroppedMerges = 0
	case outbidv1.MergeVerdict_MERGE_VERDICT_DROPPED:
		t.DroppedMerges++
		t.ForkAgain = e.GetAgain()
		x.goOnFrom(s, t, e.GetCheckpoint())
	default:
		return broken("%q is judged without a verdict", e.GetKey())
	}
	return nil
}

// goOnFrom makes the trial continue from a checkpoint instead of the one that its forks started from.
func (x *forkSlots) goOnFrom(s *Sweep, t *Trial, c *outbidv1.Checkpoint) {
	void := func(o *outbidv1.Checkpoint) bool { return t.Held(o.GetLeaseId()) != nil }
	var first, rest []*outbidv1.Checkpoint // saved since, so that nothing continues from it
	for _, o := range t.Checkpoints {
		switch {
		case o.GetKey() == c.GetKey():
		case void(o):
			first = append(first, o)
		default:
			rest = append(rest, o)
		}
	}
	t.Checkpoints = append(append(first, rest...), c)
	for _, l := range t.Leases {
		l.Void, l.AtTarget = true, false
	}
	if t.Slot != nil {
		x.setSlot(s, t, t.Slot.Dropped())
	}
	t.AtTarget = false
	t.Step = c.GetStep()
}

// showVerdict adds the verdict on an average to the fork slot that made it.
func (t *Trial) showVerdict(e *outbidv1.MergeJudged) {
	i := slices.IndexFunc(t.Merges, func(m *outbidv1.TrialMerge) bool { return m.GetRound() == e.GetRound() })
	if i < 0 {
		return
	}
	t.Merges = slices.Clone(t.Merges) // readers may have the old list
	m := proto.CloneOf(t.Merges[i])
	m.Verdict, m.BestMetric, m.Metric = e.GetVerdict(), new(e.GetBest()), e.Metric
	t.Merges[i] = m
}

// onProbation reports whether a checkpoint is the best fork's, from which the trial continues if the average is
// dropped.
func (t *Trial) onProbation(c *outbidv1.Checkpoint) bool {
	return t.Probation != nil && (!t.Done() || t.ResumesAs != trialNone) && t.Probation.GetCheckpoint().GetKey() == c.GetKey()
}
