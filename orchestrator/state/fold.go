package state

import (
	"fmt"
	"time"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// foldContext is an event that is being applied.
type foldContext struct {
	st    *State
	kind  *Kind
	at    time.Time
	sweep *Sweep
	trial *Trial
	// lease that the event names and the trial holds, or nil.
	lease *Lease
}

// Fold applies an event that was decided at the given time. It is the only way to change a state. An error wraps
// ErrBroken if the event cannot have been decided in this state, or ErrNewer.
func (st *State) Fold(at time.Time, event *outbidv1.Event) (Change, error) {
	st.Time = at
	kind := st.Kind(event)
	if kind == nil {
		return Change{}, errUnknown(event)
	}
	f := &foldContext{st: st, kind: kind, at: at}
	if err := f.find(kind, event); err != nil {
		return Change{}, err
	}
	done := Change{Event: event, Kind: kind}
	switch kind.Tuner {
	case TunerHears, TunerWidens:
		done.News = true
	case TunerHearsNews:
		done.News = kind.news(f, event)
	}
	before := f.checkpointBytes()
	if err := f.run(event, &done); err != nil {
		if f.trial != nil {
			err = fmt.Errorf("%s: %w", trialName(f.sweep.ID, f.trial.Number), err)
		}
		return Change{}, err
	}
	if done.Sweep, done.Trial, done.Lease = f.sweep, f.trial, f.lease; f.trial != nil {
		st.watch(f.sweep, f.trial)
	}
	if f.sweep != nil {
		f.sweep.CheckpointBytes += f.checkpointBytes() - before
	}
	if kind.node != nil {
		done.Node = st.Nodes[kind.node(event)]
	}
	return done, nil
}

// run applies the event, and checks its effects against the tables of transitions.
func (f *foldContext) run(event *outbidv1.Event, done *Change) error {
	for _, c := range f.kind.lifecycles {
		from := c.where(f, event)
		done.from[c.of] = from
		if err := c.allowsFrom(from); err != nil {
			return c.explain(f, event, err)
		}
	}
	if err := f.kind.fold(f, event); err != nil {
		return err
	}
	for _, c := range f.kind.lifecycles {
		to := c.where(f, event)
		done.to[c.of] = to
		if err := c.allows(done.from[c.of], to); err != nil {
			return c.explain(f, event, err)
		}
	}
	return nil
}

// find looks up what an event is about, and increments the versions.
func (f *foldContext) find(kind *Kind, event *outbidv1.Event) error {
	if kind.sweep == nil {
		return nil
	}
	id := kind.sweep(event)
	s, ok := f.st.Sweeps[id]
	if !ok {
		return broken("%s names sweep %q, which does not exist", kind.Name, id)
	}
	f.sweep = s
	s.Version++
	if kind.trial == nil || kind.creates {
		return nil
	}
	t, err := s.Trial(kind.trial(event).GetTrial())
	if err != nil {
		return broken("%s: %v", kind.Name, err)
	}
	f.trial = t
	if id, named := kind.lease(event); named {
		f.lease = t.Held(id)
	}
	s.touch(t)
	return nil
}

// Apply is Fold without the change.
func (st *State) Apply(at time.Time, event *outbidv1.Event) error {
	_, err := st.Fold(at, event)
	return err
}
