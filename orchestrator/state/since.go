package state

import (
	"slices"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Saved identifies a state that has a snapshot, so that a later snapshot may leave out unchanged records. It is immutable.
type Saved struct {
	seq    uint64
	hash   []byte
	joins  uint64
	sweeps map[string]savedSweep
}

// savedSweep is the version of a sweep, with the nodes that its record names.
type savedSweep struct {
	version          uint64
	started, trained []string
}

// Seq returns the last batch of the state.
func (o *Saved) Seq() uint64 { return o.seq }

// SavedOf identifies a state.
func SavedOf(st *State) *Saved { return savedAfter(st, nil) }

// savedAfter identifies a state. old is an earlier one, or nil.
func savedAfter(st *State, old *Saved) *Saved {
	now := &Saved{seq: st.Seq, hash: st.Hash, joins: st.joins, sweeps: make(map[string]savedSweep, len(st.SweepIDs))}
	for _, id := range st.SweepIDs {
		s := st.Sweeps[id]
		if old != nil && old.joins == st.joins { // the boots of all nodes are the same
			if was, ok := old.sweeps[id]; ok && was.version == s.Version {
				now.sweeps[id] = was
				continue
			}
		}
		now.sweeps[id] = savedSweep{s.Version, st.markedNodes(s.started), st.markedNodes(s.trained)}
	}
	return now
}

// SnapshotSince returns a snapshot of the changes since an earlier state, or of the whole state if old is nil. The
// record of a sweep that has ended and not changed has only an id. Others have the trials that have changed.
func SnapshotSince(st *State, old *Saved) (*outbidv1.StateSnapshot, *Saved) {
	snap, now := withoutSweeps(st), savedAfter(st, old)
	if old != nil {
		snap.Changes = &outbidv1.SnapshotChanges{Since: old.seq, Hash: old.hash}
	}
	for _, id := range st.SweepIDs {
		s, is := st.Sweeps[id], now.sweeps[id]
		var was savedSweep
		if old != nil {
			var known bool
			if was, known = old.sweeps[id]; known && s.Done() && was.equals(is) {
				snap.Sweeps = append(snap.Sweeps, &outbidv1.SweepRecord{Id: id})
				snap.Changes.Sweeps = append(snap.Changes.Sweeps, &outbidv1.SweepChanges{Unchanged: true})
				continue
			}
		}
		changed := s.ChangedSince(was.version) // all since version 0
		r := s.snapshot(changed)
		r.StartedOn, r.TrainedOn = is.started, is.trained
		snap.Sweeps = append(snap.Sweeps, r)
		if old != nil {
			snap.Changes.Sweeps = append(snap.Changes.Sweeps, &outbidv1.SweepChanges{Trials: changed})
		}
	}
	return snap, now
}

func (a savedSweep) equals(b savedSweep) bool {
	return a.version == b.version && slices.Equal(a.started, b.started) && slices.Equal(a.trained, b.trained)
}
