package state

import (
	"slices"

	"google.golang.org/protobuf/proto"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// ranking holds the best checkpoints of a sweep, best first: one of each trial, at most as many as are to be kept.
type ranking []ranked

type ranked struct {
	trial  int32
	key    string
	metric float64
}

func (f *folding) checkpointSaved(e *outbidv1.CheckpointSaved) error {
	s, t, c := f.sweep, f.trial, e.GetCheckpoint()
	if c.GetKey() == "" {
		return broken("checkpoint without a key")
	}
	// The same checkpoint sent again replaces itself.
	t.Checkpoints = slices.DeleteFunc(t.Checkpoints, func(o *outbidv1.Checkpoint) bool { return o.GetKey() == c.GetKey() })
	t.Checkpoints = slices.Insert(t.Checkpoints, t.place(c), c)
	t.gotFurther(f.at, t.savedUnder(c), c.GetStep(), settled)
	s.setStart(t, nil)
	f.savedInRound(c)
	s.ranking = slices.DeleteFunc(s.ranking, func(r ranked) bool { return r.key == c.GetKey() })
	for _, o := range t.Checkpoints {
		s.rank(t.Number, o)
	}
	return nil
}

// savedUnder is the lease that a checkpoint was saved under, if the trial holds it still. Checkpoints of old ledgers do not say.
func (t *Trial) savedUnder(c *outbidv1.Checkpoint) *Lease {
	if c.GetLeaseId() == 0 {
		return t.Lead()
	}
	return t.Held(c.GetLeaseId())
}

// SavedBy is the newest checkpoint that can be read of those that were saved under a lease; nil if there is none.
func (t *Trial) SavedBy(l *Lease) *outbidv1.Checkpoint {
	for _, c := range slices.Backward(t.Checkpoints) {
		if c.GetLeaseId() == l.ID && !c.GetUnreadable() {
			return c
		}
	}
	return nil
}

// place is where a checkpoint belongs among the trial's: one of the best step may be written after later ones. The last one
// that can be read is the checkpoint of record, from which the trial goes on. It is the lead's: what other forks save comes
// before it, and so does what a fork saves as it ends that leads only because the lead has ended before it, and further on.
func (t *Trial) place(c *outbidv1.Checkpoint) int {
	i, newest := len(t.Checkpoints), t.Newest()
	if l := t.savedUnder(c); l != nil && newest != nil && newest.GetLeaseId() != l.ID &&
		(l != t.Lead() || t.Start == nil && l.state() > leaseRunning && newest.GetStep() > c.GetStep()) {
		i = slices.Index(t.Checkpoints, newest)
	}
	for c.GetLeaseId() > 0 && i > 0 && t.Checkpoints[i-1].GetLeaseId() == c.GetLeaseId() && t.Checkpoints[i-1].GetStep() > c.GetStep() {
		i--
	}
	return i
}

// rank enters a checkpoint among the best. Of two as good, the one of the earlier trial comes first, so that a restored
// ranking does not depend on which was saved first.
func (s *Sweep) rank(trial int32, c *outbidv1.Checkpoint) {
	keep := int(s.Spec.GetCheckpoints().GetBest())
	if keep == 0 || c.Metric == nil || c.GetUnreadable() || !Finite(c.GetMetric()) {
		return
	}
	entry := ranked{trial, c.GetKey(), c.GetMetric()}
	if i := slices.IndexFunc(s.ranking, func(r ranked) bool { return r.trial == trial }); i >= 0 {
		if !better(entry.metric, s.ranking[i].metric, s.Maximise()) {
			return
		}
		s.ranking = slices.Delete(s.ranking, i, i+1)
	}
	at := slices.IndexFunc(s.ranking, func(r ranked) bool {
		return better(entry.metric, r.metric, s.Maximise()) || entry.metric == r.metric && entry.trial < r.trial
	})
	if at < 0 {
		at = len(s.ranking)
	}
	s.ranking = slices.Insert(s.ranking, at, entry)
	if len(s.ranking) > keep {
		s.ranking = s.ranking[:keep]
	}
}

func (f *folding) checkpointDropped(e *outbidv1.CheckpointDropped) error {
	t, key := f.trial, e.GetKey()
	i := slices.IndexFunc(t.Checkpoints, func(c *outbidv1.Checkpoint) bool { return c.GetKey() == key })
	if i < 0 {
		return broken("dropped checkpoint %q is not there", key)
	}
	t.Checkpoints = slices.Delete(t.Checkpoints, i, i+1)
	return nil
}

func (s *Sweep) setStart(t *Trial, c *outbidv1.Checkpoint) {
	if t.Start != nil {
		if s.refs[t.Start.GetKey()]--; s.refs[t.Start.GetKey()] <= 0 {
			delete(s.refs, t.Start.GetKey())
		}
	}
	if t.Start = c; c != nil {
		s.refs[c.GetKey()]++
	}
}

// unreadable: nothing starts from a checkpoint any more, be it the trial's own or the one that it was to be a clone of.
// It stays in the store, where a person may look at it, until a newer one takes its place.
func (s *Sweep) unreadable(t *Trial, key string) {
	for _, o := range s.holders(t) {
		for i, c := range o.Checkpoints {
			if c.GetKey() == key {
				c = proto.CloneOf(c) // the event that saved it is not changed
				c.Unreadable = true
				s.touch(o)
				o.Checkpoints = slices.Clone(o.Checkpoints)
				o.Checkpoints[i] = c
			}
		}
		if o.Probation != nil && o.Probation.GetKey() == key {
			o.Probation = nil // there is nothing to judge any more
		}
		if o.Start.GetKey() == key {
			s.touch(o)
			s.setStart(o, s.before(key))
		}
	}
	s.ranking = slices.DeleteFunc(s.ranking, func(r ranked) bool { return r.key == key })
	for _, o := range s.Trials {
		for _, c := range o.Checkpoints {
			s.rank(o.Number, c)
		}
	}
}

// holders are the trials that a trial's start may be a checkpoint of, or be shared with: all, where it is a clone.
func (s *Sweep) holders(t *Trial) []*Trial {
	if t.Start == nil {
		return []*Trial{t}
	}
	return s.Trials
}

// before is the newest checkpoint that can be read of the trial that a checkpoint is of; nil if there is none.
func (s *Sweep) before(key string) *outbidv1.Checkpoint {
	for _, t := range s.Trials {
		if slices.ContainsFunc(t.Checkpoints, func(c *outbidv1.Checkpoint) bool { return c.GetKey() == key }) {
			return t.Newest()
		}
	}
	return nil
}

// Droppable lists the checkpoints of a trial that nothing needs any more, oldest first: not to resume it or a clone of
// it, and not by what the spec says is to be kept. A trial that goes on has the one before its newest too, in case that
// cannot be read.
func (s *Sweep) Droppable(t *Trial) []*outbidv1.Checkpoint {
	rules := s.Spec.GetCheckpoints()
	if rules.GetAll() {
		return nil
	}
	var drop []*outbidv1.Checkpoint
	newest := t.Newest()
	spare := t.spare()
	for _, c := range t.Checkpoints {
		switch {
		case c == newest && (rules.GetLast() || !t.Done() || len(t.Leases) > 0 || t.ResumesAs != trialNone):
		case c == spare && !t.Done():
		case slices.ContainsFunc(t.Leases, func(l *Lease) bool { return l != t.Lead() && c == t.SavedBy(l) }):
		case t.needsForRound(c), t.onProbation(c):
		case s.refs[c.GetKey()] > 0:
		case t.Number == s.Best && rules.GetBest() > 0 && c == s.BestCheckpoint(t):
			// The best trial always has one to load, also if its best value was never saved or another's equals it.
		case slices.ContainsFunc(s.ranking, func(r ranked) bool { return r.key == c.GetKey() }):
		default:
			drop = append(drop, c)
		}
	}
	return drop
}

// spare is the newest checkpoint but one that can be read; nil if there is none.
func (t *Trial) spare() *outbidv1.Checkpoint {
	newest := t.Newest()
	for _, c := range slices.Backward(t.Checkpoints) {
		if c != newest && !c.GetUnreadable() {
			return c
		}
	}
	return nil
}

// BestCheckpoint is the trial's checkpoint with the best metric, the newest if none has one, nil if there is none.
func (s *Sweep) BestCheckpoint(t *Trial) *outbidv1.Checkpoint {
	if best := BestOf(t.Checkpoints, s.Maximise()); best != nil {
		return best
	}
	return t.Newest()
}

// BestOf is the checkpoint with the best metric, of equals the first; nil if none has one that is a number. Each goes with
// what was reported at its step, or last before it.
func BestOf(checkpoints []*outbidv1.Checkpoint, maximise bool) *outbidv1.Checkpoint {
	var best *outbidv1.Checkpoint
	for _, c := range checkpoints {
		if c.Metric == nil || c.GetUnreadable() || !Finite(c.GetMetric()) {
			continue
		}
		if best == nil || better(c.GetMetric(), best.GetMetric(), maximise) {
			best = c
		}
	}
	return best
}

// Ranked lists the trials whose checkpoints are among the best of the sweep, best first.
func (s *Sweep) Ranked() []int32 {
	trials := make([]int32, len(s.ranking))
	for i, r := range s.ranking {
		trials[i] = r.trial
	}
	return trials
}
