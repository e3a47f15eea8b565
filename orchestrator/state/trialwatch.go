package state

import (
	"cmp"
	"maps"
	"slices"
)

// trialWatch owns the sets of trials that must run alone, or that avoid nodes.
type trialWatch struct {
	suspects map[*Trial]*Sweep
	// avoiding are the trials that avoid a node.
	avoiding map[*Trial]*Sweep
}

// Suspect is a trial that must run alone on a node.
type Suspect struct {
	Sweep *Sweep
	Trial *Trial
}

// watch updates the sets of suspects and of trials that avoid a node. Trials that have ended are removed.
func (w *trialWatch) watch(s *Sweep, t *Trial) {
	if t.Suspected && !t.Done() {
		w.suspects[t] = s
	} else if len(w.suspects) > 0 {
		delete(w.suspects, t)
	}
	if len(t.Avoided) > 0 && !t.Done() {
		w.avoiding[t] = s
	} else if len(w.avoiding) > 0 {
		delete(w.avoiding, t)
	}
}

// CountSuspects returns how many trials must run alone.
func (w *trialWatch) CountSuspects() int { return len(w.suspects) }

// Suspects returns the trials that must run alone, those of earlier sweeps first.
func (w *trialWatch) Suspects() []Suspect {
	all := make([]Suspect, 0, len(w.suspects))
	for t, s := range maps.All(w.suspects) {
		all = append(all, Suspect{s, t})
	}
	slices.SortFunc(all, func(a, b Suspect) int {
		return cmp.Or(a.Sweep.Order-b.Sweep.Order, int(a.Trial.Number-b.Trial.Number))
	})
	return all
}

// Avoiding returns the trials that avoid a node, or did until a time, with their sweeps.
func (w *trialWatch) Avoiding() map[*Trial]*Sweep { return w.avoiding }

// letReturn lets the trials of a sweep, or all if it is "", return to a node on which they could not be started.
func (w *trialWatch) letReturn(node, sweep string) {
	for t, s := range w.avoiding { // in any order: each changes only its own trial
		if a := t.Avoids(node); a == nil || a.Starts == 0 || sweep != "" && sweep != s.ID {
			continue
		}
		t.Avoided = slices.DeleteFunc(slices.Clone(t.Avoided), func(a Avoided) bool { return a.Node == node })
		s.Version++
		s.touch(t)
		w.watch(s, t)
	}
}

// letReturnTo lets the trials of a sweep that failed on the nodes of a lease return there.
func (w *trialWatch) letReturnTo(s *Sweep, l *Lease) {
	for t, of := range w.avoiding { // in any order: each changes only its own trial
		if of == s {
			t.Avoided = slices.DeleteFunc(slices.Clone(t.Avoided), func(a Avoided) bool { return a.Starts == 0 && l.PlaceOn(a.Node) >= 0 })
			s.touch(t)
			w.watch(s, t)
		}
	}
}
