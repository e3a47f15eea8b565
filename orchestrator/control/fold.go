package control

import (
	"fmt"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/state"
	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/remote"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// answer is the response of a sweep's tuner to an event. It is empty if the tuner was not asked.
type answer struct {
	sweep   *state.Sweep
	actions []tuner.Action
	err     error
}

// fold applies an event: one just decided, read from the ledger at startup, or replayed. It changes the state and
// then notifies the components that the table of events names. It returns the tuner's answer. A live caller acts on
// the answer; on replay its consequences are the next events in the ledger.
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
		c.scheduleDue = c.scheduleDue || suspects != c.st.CountSuspects() // trials now avoid a node, or no longer do
	}
	a, err := c.tellTuner(change)
	return change, a, err
}

// beforeFold acts on an event for components that need the state before it.
func (c *Core) beforeFold(e *outbidv1.Event) error {
	kind := c.st.Kind(e)
	if kind == nil {
		return nil // the state rejects the event
	}
	if c.replaying {
		switch kind.Policy {
		case state.PolicyBegins:
			c.rebegin()
		case state.PolicyStarts:
			c.begun = nil // the earlier server's decision did not finish
			if err := c.installPast(e.GetOrchestratorStarted().GetPolicy()); err != nil {
				return err
			}
		case state.PolicyDecided:
			c.redecide(e.GetRoundDecided())
		}
	}
	if kind.Tuner == state.TunerArchives || kind.Tuner == state.TunerWidens {
		if s := c.reopened(e); s != nil {
			if err := c.wake(s, "continued"); err != nil {
				c.unopened[s.ID] = err
			}
		}
	}
	return nil
}

// mark records the work that an event causes in the current step.
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

// tellTuner passes an event to its sweep's tuner, if the table of events says so.
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
	}
	if change.News {
		return c.consult(s, tunerEvent(change)), nil
	}
	return answer{}, nil
}

// consult passes an event to a sweep's tuner and returns its answer. A tuner that fails is not asked again. A remote
// tuner answers later.
func (c *Core) consult(s *state.Sweep, e tuner.Event) answer {
	t := c.tuners[s.ID]
	if t == nil {
		return answer{} // the tuner failed, and so did the sweep
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

// handle passes an event to a tuner. A panic counts as a failure of that tuner, so that only its sweep fails.
func handle(t tuner.Tuner, e tuner.Event) (actions []tuner.Action, err error) {
	defer func() {
		if p := recover(); p != nil {
			actions, err = nil, fmt.Errorf("panic: %v", p)
		}
	}()
	return t.Handle(e)
}

// follow acts on a tuner's answer.
func (c *Core) follow(a answer) {
	if a.err != nil {
		c.tunerFailed(a.sweep, a.err)
		return
	}
	c.act(a.sweep, a.actions)
}

// reopened returns the sweep that an event continues though it may have ended, or nil.
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
