package state

import (
	"math"
	"slices"
)

// changeLog lists the changes of a sweep's trials, by version.
type changeLog struct {
	// Version grows with every change.
	Version uint64
	changes []change
}

type change struct {
	version uint64
	trial   int32
}

// touch records that a trial changed at the sweep's version.
func (s *Sweep) touch(t *Trial) {
	t.version = s.Version
	s.changes = append(s.changes, change{s.Version, t.Number})
	if len(s.changes) > 2*len(s.Trials)+1024 {
		s.compact(s.Trials)
	}
}

// compact keeps only the newest change of each trial.
func (l *changeLog) compact(trials []*Trial) {
	var kept []change // readers may have the old list
	for _, c := range l.changes {
		if trials[c.trial].version == c.version {
			kept = append(kept, c)
		}
	}
	l.changes = kept
}

// ChangedSince lists the trials that changed after a version, by number. 0 lists all, math.MaxUint64 none.
func (s *Sweep) ChangedSince(version uint64) []int32 {
	return s.changedSince(version, len(s.Trials), func(n int32) *Trial { return s.Trials[n] })
}

func (l *changeLog) changedSince(version uint64, trials int, trial func(int32) *Trial) []int32 {
	if version == math.MaxUint64 {
		return nil
	}
	if version == 0 || version > l.Version {
		all := make([]int32, trials)
		for i := range all {
			all[i] = int32(i)
		}
		return all
	}
	i, _ := slices.BinarySearchFunc(l.changes, version+1, func(c change, v uint64) int {
		switch {
		case c.version < v:
			return -1
		case c.version > v:
			return 1
		default:
			return 0
		}
	})
	var changed []int32
	for _, c := range l.changes[i:] {
		if trial(c.trial).version == c.version {
			changed = append(changed, c.trial)
		}
	}
	slices.Sort(changed)
	return slices.Compact(changed)
}
