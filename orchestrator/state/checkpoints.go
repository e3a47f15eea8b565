package state

import (
	"math"
	"slices"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// ranking holds the best checkpoints of a sweep, best first: one of each trial, at most as many as are to be kept.
type ranking []ranked

type ranked struct {
	trial  int32
	key    string
	metric float64
}

func (s *Sweep) checkpointSaved(t *Trial, c *outbidv1.Checkpoint) error {
	if c.GetKey() == "" {
		return broken("checkpoint without a key")
	}
	// The same checkpoint sent again replaces itself.
	t.Checkpoints = slices.DeleteFunc(t.Checkpoints, func(o *outbidv1.Checkpoint) bool { return o.GetKey() == c.GetKey() })
	t.Checkpoints = append(t.Checkpoints, c)
	s.setStart(t, nil)
	s.ranking = slices.DeleteFunc(s.ranking, func(r ranked) bool { return r.key == c.GetKey() })
	for _, o := range t.Checkpoints {
		s.rank(t.Number, o)
	}
	return nil
}

// rank enters a checkpoint among the best. Of two as good, the one of the earlier trial comes first, so that a restored
// ranking does not depend on which was saved first.
func (s *Sweep) rank(trial int32, c *outbidv1.Checkpoint) {
	keep := int(s.Spec.GetCheckpoints().GetBest())
	if keep == 0 || c.Metric == nil || math.IsNaN(c.GetMetric()) {
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

func (s *Sweep) checkpointDropped(t *Trial, key string) error {
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

// Droppable lists the checkpoints of a trial that nothing needs any more, oldest first: not to resume it or a clone of
// it, and not by what the spec says is to be kept.
func (s *Sweep) Droppable(t *Trial) []*outbidv1.Checkpoint {
	rules := s.Spec.GetCheckpoints()
	if rules.GetAll() {
		return nil
	}
	var drop []*outbidv1.Checkpoint
	newest := t.Newest()
	for _, c := range t.Checkpoints {
		switch {
		case c == newest && (rules.GetLast() || !t.Done() || t.Lease != nil):
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

// BestCheckpoint is the trial's checkpoint with the best metric, the newest if none has one, nil if there is none.
func (s *Sweep) BestCheckpoint(t *Trial) *outbidv1.Checkpoint {
	best := t.Newest()
	for _, c := range t.Checkpoints {
		if c.Metric != nil && (best.Metric == nil || better(c.GetMetric(), best.GetMetric(), s.Maximise())) {
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
