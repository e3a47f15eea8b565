package state

import (
	"slices"
	"time"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Change describes what one event did, for components that follow the state. They use it instead of the event's kind,
// so that a new kind of event is described only in the table. It points into the state, which continues to change.
type Change struct {
	Event *outbidv1.Event
	// Kind is the event's row in the table.
	Kind *Kind
	// Sweep and Trial that the event is about, or nil. A deleted sweep is no longer in the state.
	Sweep *Sweep
	Trial *Trial
	// Lease that the event granted or that the trial held, or nil.
	Lease *Lease
	// Node that the event is about, or nil.
	Node *Node
	// News reports whether the sweep's tuner gets the event.
	News bool

	// from and to are the states of each subject before and after the event.
	from, to [subjects]int32
}

// subject is something with a state: a sweep, trial, lease or node.
type subject int

const (
	subjectSweep subject = iota
	subjectTrial
	subjectLease
	subjectNode
	subjects
)

// Names of transitions, for Change.Did.
const (
	Extended       = "extend"
	Targeted       = "targeted"
	Paused         = "paused"
	Cloned         = "cloned"
	Retried        = "retried"
	ProcessStarted = "process started"
	TargetReached  = "target reached"
	PlaceEnded     = "place ended"
	Revoked        = "revoked"
	ProcessFailed  = "process failed"
	FoundAtFault   = "found at fault"
	ClearedOfFault = "cleared of a fault"
)

// Did reports whether the event's kind makes the named transition.
func (c *Change) Did(what string) bool {
	return slices.ContainsFunc(c.Kind.lifecycles, func(of *lifecycle) bool { return slices.Contains(of.events, what) })
}

// SweepTo returns the state that the event moved its sweep to; unspecified if it moved none, or deleted it.
func (c *Change) SweepTo() outbidv1.SweepState { return outbidv1.SweepState(c.to[subjectSweep]) }

// TrialTo returns the state that the event moved its trial to; unspecified if it moved none.
func (c *Change) TrialTo() outbidv1.TrialState { return outbidv1.TrialState(c.to[subjectTrial]) }

// NodeTo returns the state of the node that the event changed; unspecified if it changed none.
func (c *Change) NodeTo() outbidv1.NodeState {
	if c.Kind.View != ViewNodes {
		return nodeNone
	}
	return outbidv1.NodeState(c.to[subjectNode])
}

// SweepBegan reports whether the event created a sweep.
func (c *Change) SweepBegan() bool { return c.began(subjectSweep) }

// SweepGone reports whether the event removed a sweep.
func (c *Change) SweepGone() bool {
	return c.from[subjectSweep] != 0 && c.to[subjectSweep] == 0
}

// SweepEnded reports whether the event ended a sweep.
func (c *Change) SweepEnded() bool {
	return sweepOver(c.SweepTo()) && !sweepOver(sweepState(c.from[subjectSweep]))
}

// TrialBegan reports whether the event created a trial.
func (c *Change) TrialBegan() bool { return c.began(subjectTrial) }

// TrialEnded reports whether the event ended a trial.
func (c *Change) TrialEnded() bool {
	return c.TrialTo() >= trialCompleted && trialState(c.from[subjectTrial]) < trialCompleted
}

// LeaseBegan reports whether the event gave the trial a lease.
func (c *Change) LeaseBegan() bool { return c.began(subjectLease) }

// Waited returns how long the trial had been queued when the event gave it a lease, or false if it was not queued.
func (c *Change) Waited() (time.Duration, bool) {
	if !c.LeaseBegan() || trialState(c.from[subjectTrial]) != trialQueued || c.Trial.Queued.IsZero() {
		return 0, false
	}
	waited := c.Lease.Granted.Sub(c.Trial.Queued)
	return waited, waited >= 0 // it may be queued again
}

// LeaseEnded reports whether the event took a lease from the trial.
func (c *Change) LeaseEnded() bool {
	return c.from[subjectLease] != 0 && c.to[subjectLease] == 0
}

func (c *Change) began(s subject) bool { return c.from[s] == 0 && c.to[s] != 0 }

// Step returns the step of a fork in the event, or false if it contains none.
func (c *Change) Step() (int64, bool) {
	if c.Kind.step == nil {
		return 0, false
	}
	return c.Kind.step(c.Event), true
}

// Actor returns the user who requested the event, or "".
func (c *Change) Actor() string {
	if by, ok := c.Kind.body(c.Event).(interface{ GetActor() string }); ok {
		return by.GetActor()
	}
	return ""
}

// Fault returns the fault that the event records for its node, or nil.
func (c *Change) Fault() *outbidv1.NodeFault {
	if found, ok := c.Kind.body(c.Event).(interface{ GetFault() *outbidv1.NodeFault }); ok {
		return found.GetFault()
	}
	return nil
}

// Cleared reports whether the event cleared a fault of its node, the sweep of the fault ("" for all), and the reason.
func (c *Change) Cleared() (sweep, reason string, ok bool) {
	if cleared, is := c.Kind.body(c.Event).(interface {
		faultKey
		GetReason() string
	}); is && c.Did(ClearedOfFault) {
		return cleared.GetSweep(), cleared.GetReason(), true
	}
	return "", "", false
}
