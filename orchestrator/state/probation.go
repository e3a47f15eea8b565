package state

import (
	"slices"

	"google.golang.org/protobuf/proto"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// mergeJudged: the average that the trial goes on from is on probation, stays, or makes room for the best fork's checkpoint. A
// dropped one takes no step back: the trial is where its round ended, and what was done since from the average counts for nothing.
func (f *folding) mergeJudged(e *outbidv1.MergeJudged) error {
	t := f.trial
	switch pending := e.GetVerdict() == outbidv1.MergeVerdict_MERGE_VERDICT_PENDING; {
	case pending && (len(t.Leases) > 0 || t.From().GetKey() != e.GetKey()):
		return broken("%q is on probation, and is not what the trial goes on from", e.GetKey())
	case !pending && (t.Probation == nil || t.Probation.GetKey() != e.GetKey()):
		return broken("%q is judged, and was not to be", e.GetKey())
	}
	f.showVerdict(e)
	t.Probation = nil
	switch e.GetVerdict() {
	case outbidv1.MergeVerdict_MERGE_VERDICT_PENDING:
		t.Probation = e
	case outbidv1.MergeVerdict_MERGE_VERDICT_KEPT:
		t.DroppedMerges = 0
	case outbidv1.MergeVerdict_MERGE_VERDICT_DROPPED:
		t.DroppedMerges++
		t.ForkAgain = e.GetAgain()
		f.goOnFrom(e.GetCheckpoint())
	default:
		return broken("%q is judged, and not said how", e.GetKey())
	}
	return nil
}

// goOnFrom has the trial go on from a checkpoint instead of the one that its forks began with.
func (f *folding) goOnFrom(c *outbidv1.Checkpoint) {
	t := f.trial
	void := func(o *outbidv1.Checkpoint) bool { return t.Held(o.GetLeaseId()) != nil }
	var first, rest []*outbidv1.Checkpoint // what was saved since comes first: nothing falls back on it
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
	if t.Round != nil {
		f.setRound(t.Round.Dropped())
	}
	t.AtTarget = false
	t.Step = c.GetStep()
}

// showVerdict notes beside a round that has ended what became of its average.
func (f *folding) showVerdict(e *outbidv1.MergeJudged) {
	t := f.trial
	i := slices.IndexFunc(t.Merges, func(m *outbidv1.TrialMerge) bool { return m.GetRound() == e.GetRound() })
	if i < 0 {
		return
	}
	t.Merges = slices.Clone(t.Merges) // readers may have what was
	m := proto.CloneOf(t.Merges[i])
	m.Verdict, m.BestMetric, m.Metric = e.GetVerdict(), new(e.GetBest()), e.Metric
	t.Merges[i] = m
}

// onProbation says whether a checkpoint is the best fork's, which the trial goes on from if the average is dropped.
func (t *Trial) onProbation(c *outbidv1.Checkpoint) bool {
	return t.Probation != nil && (!t.Done() || t.ResumesAs != trialNone) && t.Probation.GetCheckpoint().GetKey() == c.GetKey()
}
