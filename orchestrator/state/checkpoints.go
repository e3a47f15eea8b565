package state

import (
	"slices"

	"google.golang.org/protobuf/proto"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// ranking holds the best checkpoints of a sweep, best first: one of each trial, and at most as many as the spec
// keeps.
type ranking []ranked

type ranked struct {
	trial  int32
	key    string
	metric float64
}

func (f *foldContext) checkpointSaved(e *outbidv1.CheckpointSaved) error {
	s, t, c := f.sweep, f.trial, e.GetCheckpoint()
	if c.GetKey() == "" {
		return broken("checkpoint without a key")
	}
	// A checkpoint that is sent again replaces itself.
	t.Checkpoints = slices.DeleteFunc(t.Checkpoints, func(o *outbidv1.Checkpoint) bool { return o.GetKey() == c.GetKey() })
	t.Checkpoints = slices.Insert(t.Checkpoints, t.place(c), c)
	lease := t.Held(c.GetLeaseId())
	t.gotFurther(f.at, lease, c.GetStep(), trustAfter)
	s.setStart(t, nil)
	f.st.savedInSlot(s, t, c)
	lease.completeShards(c)
	s.ranking = slices.DeleteFunc(s.ranking, func(r ranked) bool { return r.key == c.GetKey() })
	for _, o := range t.Checkpoints {
		s.rank(t.Number, o)
	}
	return nil
}

// SavedBy returns the newest readable checkpoint that was saved under a lease, or nil.
func (t *Trial) SavedBy(l *Lease) *outbidv1.Checkpoint {
	for _, c := range slices.Backward(t.Checkpoints) {
		if c.GetLeaseId() == l.ID && !c.GetUnreadable() {
			return c
		}
	}
	return nil
}

// place returns the index for a new checkpoint of the trial. The checkpoint of the best step may be
// written after later ones. The trial continues from the last readable checkpoint, which belongs to the leading fork.
// Checkpoints of other forks come before it. So does the last checkpoint of a fork that leads only because the
// previous leading fork, which got further, ended first.
func (t *Trial) place(c *outbidv1.Checkpoint) int {
	i, newest := len(t.Checkpoints), t.Newest()
	if l := t.Held(c.GetLeaseId()); l != nil && newest != nil && newest.GetLeaseId() != l.ID &&
		(l != t.Lead() || t.Start == nil && l.state() > leaseRunning && newest.GetStep() > c.GetStep()) {
		i = slices.Index(t.Checkpoints, newest)
	}
	for c.GetLeaseId() > 0 && i > 0 && t.Checkpoints[i-1].GetLeaseId() == c.GetLeaseId() && t.Checkpoints[i-1].GetStep() > c.GetStep() {
		i--
	}
	return i
}

// rank adds a checkpoint to the best ones. Of equals, the one of the earlier trial comes first, so that a restored
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

func (f *foldContext) checkpointDropped(e *outbidv1.CheckpointDropped) error {
	t, key := f.trial, e.GetKey()
	i := slices.IndexFunc(t.Checkpoints, func(c *outbidv1.Checkpoint) bool { return c.GetKey() == key })
	if i < 0 {
		return broken("dropped checkpoint %q does not exist", key)
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

// unreadable marks a checkpoint as unreadable, so that no trial or clone starts from it. It stays in the store for
// inspection until a newer one replaces it.
func (s *Sweep) unreadable(t *Trial, key string) {
	for _, o := range s.holders(t) {
		for i, c := range o.Checkpoints {
			if c.GetKey() == key {
				c = proto.CloneOf(c) // the event that saved it must not change
				c.Unreadable = true
				s.touch(o)
				o.Checkpoints = slices.Clone(o.Checkpoints)
				o.Checkpoints[i] = c
			}
		}
		if o.Probation != nil && o.Probation.GetKey() == key {
			s.touch(o)
			o.Probation = nil // nothing is left to judge
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

// holders returns the trials that may have or share a trial's start: all trials if it is a clone.
func (s *Sweep) holders(t *Trial) []*Trial {
	if t.Start == nil {
		return []*Trial{t}
	}
	return s.Trials
}

// before returns the newest readable checkpoint of the trial that a checkpoint belongs to, or nil.
func (s *Sweep) before(key string) *outbidv1.Checkpoint {
	for _, t := range s.Trials {
		if slices.ContainsFunc(t.Checkpoints, func(c *outbidv1.Checkpoint) bool { return c.GetKey() == key }) {
			return t.Newest()
		}
	}
	return nil
}

// Droppable lists the checkpoints of a trial that are no longer needed, oldest first: neither to resume or retry it or
// a clone of it, nor because of the spec. A trial that has not ended also keeps the one before its newest, in case that
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
		case c == newest && (rules.GetLast() || !t.Done() || len(t.Leases) > 0 || t.ResumesAs != trialNone || t.State == trialFailed):
		case c == spare && !t.Done():
		case slices.ContainsFunc(t.Leases, func(l *Lease) bool { return l != t.Lead() && c == t.SavedBy(l) }):
		case t.needsForSlot(c), t.onProbation(c):
		case s.refs[c.GetKey()] > 0:
		case t.Number == s.Best && rules.GetBest() > 0 && c == s.BestCheckpoint(t):
			// Keep a checkpoint of the best trial even if its best value was never saved, or equals that of another
			// trial.
		case slices.ContainsFunc(s.ranking, func(r ranked) bool { return r.key == c.GetKey() }):
		default:
			drop = append(drop, c)
		}
	}
	return drop
}

// spare returns the second newest readable checkpoint, or nil.
func (t *Trial) spare() *outbidv1.Checkpoint {
	newest := t.Newest()
	for _, c := range slices.Backward(t.Checkpoints) {
		if c != newest && !c.GetUnreadable() {
			return c
		}
	}
	return nil
}

// BestCheckpoint returns the trial's checkpoint with the best metric, or the newest if none has a metric, or nil.
func (s *Sweep) BestCheckpoint(t *Trial) *outbidv1.Checkpoint {
	if best := BestOf(t.Checkpoints, s.Maximise()); best != nil {
		return best
	}
	return t.Newest()
}

// BestOf returns the first checkpoint with the best finite metric, or nil. A checkpoint's metric was reported at its
// step, or last before it.
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
