package control

import (
	"fmt"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/state"
	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/remote"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// answer is what a sweep's tuner said to an event; nothing if it was not asked.
type answer struct {
	sweep   *state.Sweep
	actions []tuner.Action
	err     error
}

// fold takes in one event, be it decided just now, read from the ledger at a start, or replayed: the state changes, and
// then all those hear of it to whom it means something by the table of events. It returns what the tuner says to that.
// Who decides acts on it; in the ledger, what followed from it comes next.
func (c *Core) fold(at time.Time, e *outbidv1.Event) (state.Change, answer, error) {
	c.now = at
	if err := c.beforeFold(e); err != nil {
		return state.Change{}, answer{}, err
	}
	suspects := c.st.CountSuspects()
	change, err := c.st.Fold(at, e)
	if err != nil {
		return state.Change{}, answer{}, err
	}
	c.views.mark(change)
	if !c.replaying {
		c.mark(change)
		c.scheduleDue = c.scheduleDue || suspects != c.st.CountSuspects() // a node is kept for one, or open to all again
	}
	a, err := c.tellTuner(change)
	return change, a, err
}

// beforeFold has those act on an event who need the state before it.
func (c *Core) beforeFold(e *outbidv1.Event) error {
	kind := c.st.Kind(e)
	if kind == nil {
		return nil // the state refuses it
	}
	if c.replaying {
		switch kind.Policy {
		case state.PolicyBegins:
			c.rebegin()
		case state.PolicyStarts:
			c.begun = nil // whoever decided then did not come to an end
			if err := c.installPast(e.GetOrchestratorStarted().GetPolicy()); err != nil {
				return err
			}
		case state.PolicyDecided:
			c.redecide(e.GetRoundDecided())
		}
	}
	if kind.Tuner == state.TunerArchives || kind.Tuner == state.TunerWidens {
		if s := c.reopened(e); s != nil {
			if err := c.wake(s, "gone on with"); err != nil {
				c.unopened[s.ID] = err
			}
		}
	}
	return nil
}

// mark notes what the step under way has to do because of an event.
func (c *Core) mark(change state.Change) {
	if change.Kind.Asks {
		c.scheduleDue = true
	}
	if change.Kind.Advances {
		c.touched[change.Sweep.ID] = true
	}
	if change.Kind.Orders {
		for _, p := range change.Lease.Places {
			c.dirty(p.Node)
		}
	}
}

// tellTuner lets a sweep's tuner follow an event.
func (c *Core) tellTuner(change state.Change) (answer, error) {
	s := change.Sweep
	switch change.Kind.Tuner {
	case state.TunerStarts:
		switch {
		case isRemote(s.Spec):
			c.tuners[s.ID] = remote.New(s.Spec, change.Event.GetSweepSubmitted().GetTuner())
		case c.tuners[s.ID] == nil:
			c.open(s.ID, s.Spec, nil)
		}
		c.noteMayCreate(s)
	case state.TunerArchives:
		if s.Done() {
			delete(c.unopened, s.ID)
			c.archive(s)
		}
	case state.TunerForgotten:
		c.forget(s.ID)
	case state.TunerAsked:
		if c.replaying {
			return c.consult(s, tunerEvent(change)), nil
		}
	case state.TunerAnswers:
		return answer{}, c.answered(s, change.Event.GetTunerAnswered())
	case state.TunerRecorded:
		if change.Event.GetOrchestratorStarted().GetAnswersRecorded() {
			return answer{}, c.recordAnswers()
		}
	}
	if change.News {
		return c.consult(s, tunerEvent(change)), nil
	}
	return answer{}, nil
}

// consult asks a sweep's tuner what is to follow from an event. One that fails is not asked again. One in a process of its own
// is told, and answers later.
func (c *Core) consult(s *state.Sweep, e tuner.Event) answer {
	t := c.tuners[s.ID]
	if t == nil {
		return answer{} // it failed, and the sweep with it
	}
	if r, ok := t.(*remote.Tuner); ok {
		r.Tell(c.now, e)
		c.asking[s.ID] = true
		return answer{}
	}
	actions, err := handle(t, e)
	if err != nil {
		delete(c.tuners, s.ID)
		delete(c.mayCreate, s.ID)
		return answer{sweep: s, err: err}
	}
	c.noteMayCreate(s)
	return answer{sweep: s, actions: actions}
}

// handle lets a tuner handle an event. One that panics has failed like any other, and its sweep alone with it.
func handle(t tuner.Tuner, e tuner.Event) (actions []tuner.Action, err error) {
	defer func() {
		if p := recover(); p != nil {
			actions, err = nil, fmt.Errorf("panic: %v", p)
		}
	}()
	return t.Handle(e)
}

// follow has happen what a tuner answered.
func (c *Core) follow(a answer) {
	if a.err != nil {
		c.tunerFailed(a.sweep, a.err)
		return
	}
	c.act(a.sweep, a.actions)
}

// reopened is the sweep that an event is to let go on though it may have ended; nil for none.
func (c *Core) reopened(e *outbidv1.Event) *state.Sweep {
	if s := c.st.Sweeps[e.GetSweepExtended().GetSweep()]; s != nil {
		return s
	}
	s := c.st.Sweeps[e.GetSweepChanged().GetSweep()]
	if s != nil && s.Done() && e.GetSweepChanged().GetState() == outbidv1.SweepState_SWEEP_STATE_RUNNING {
		return s
	}
	return nil
}
