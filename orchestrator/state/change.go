package state

import (
	"slices"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Change is what one event did, for those who follow the state. They read this and not the event's kind: so a new kind of
// event is said in the table, and nowhere else. What it points to is part of the state, and goes on changing.
type Change struct {
	Event *outbidv1.Event
	// Kind is the event's row in the table.
	Kind *Kind
	// Sweep and Trial that it was about, nil for none. A sweep that was deleted is no longer in the state.
	Sweep *Sweep
	Trial *Trial
	// Lease that it was about, nil for none: what it granted, or what the trial held.
	Lease *Lease
	// Node that it was about, nil for none.
	Node *Node
	// News: the sweep's tuner hears of it.
	News bool

	// from and to are the states that it led between, of those that have a life and that it moves.
	from, to [subjects]int32
}

// subject is one of those that have a life of their own.
type subject int

const (
	subjectSweep subject = iota
	subjectTrial
	subjectLease
	subjectNode
	subjects
)

// What events do to trials, leases and nodes, in the words of the tables of transitions, for those who ask Change.Did.
const (
	Extended       = "extend"
	Targeted       = "targeted"
	Paused         = "paused"
	Cloned         = "cloned"
	ProcessStarted = "process started"
	TargetReached  = "target reached"
	PlaceEnded     = "place ended"
	ProcessFailed  = "process failed"
	FoundAtFault   = "found at fault"
	ClearedOfFault = "cleared of a fault"
)

// Did says whether it is of a kind that does something that the tables of transitions name.
func (c *Change) Did(what string) bool {
	return slices.ContainsFunc(c.Kind.courses, func(of *course) bool { return slices.Contains(of.events, what) })
}

// SweepTo is the state that the event moved its sweep to; unspecified if it moves none, or deleted it.
func (c *Change) SweepTo() outbidv1.SweepState { return outbidv1.SweepState(c.to[subjectSweep]) }

// TrialTo is the state that the event moved its trial to; unspecified if it moves none.
func (c *Change) TrialTo() outbidv1.TrialState { return outbidv1.TrialState(c.to[subjectTrial]) }

// NodeTo is the state of the node that it changed; unspecified if it changed none.
func (c *Change) NodeTo() outbidv1.NodeState {
	if c.Kind.View != ViewNodes {
		return nodeNone
	}
	return outbidv1.NodeState(c.to[subjectNode])
}

// SweepBegan says whether there is a sweep that was not there before.
func (c *Change) SweepBegan() bool { return c.began(subjectSweep) }

// SweepGone says whether a sweep is no longer there.
func (c *Change) SweepGone() bool {
	return c.from[subjectSweep] != 0 && c.to[subjectSweep] == 0
}

// SweepEnded says whether a sweep has come to its end.
func (c *Change) SweepEnded() bool {
	return sweepOver(c.SweepTo()) && !sweepOver(sweepState(c.from[subjectSweep]))
}

// TrialBegan says whether there is a trial that was not there before.
func (c *Change) TrialBegan() bool { return c.began(subjectTrial) }

// TrialEnded says whether a trial has come to its end.
func (c *Change) TrialEnded() bool {
	return c.TrialTo() >= trialCompleted && trialState(c.from[subjectTrial]) < trialCompleted
}

// LeaseBegan says whether the trial holds a lease that it did not hold before.
func (c *Change) LeaseBegan() bool { return c.began(subjectLease) }

// LeaseEnded says whether the trial holds a lease no more.
func (c *Change) LeaseEnded() bool {
	return c.from[subjectLease] != 0 && c.to[subjectLease] == 0
}

func (c *Change) began(s subject) bool { return c.from[s] == 0 && c.to[s] != 0 }

// Step is how far the event says that a fork was; false if it says nothing of that.
func (c *Change) Step() (int64, bool) {
	if c.Kind.step == nil {
		return 0, false
	}
	return c.Kind.step(c.Event), true
}

// Actor is who asked for it; "" for nobody.
func (c *Change) Actor() string {
	if by, ok := c.Kind.body(c.Event).(interface{ GetActor() string }); ok {
		return by.GetActor()
	}
	return ""
}

// Fault returns the fault of its node that keeps trials off from here on; nil if it is about something else.
func (c *Change) Fault() *outbidv1.NodeFault {
	if found, ok := c.Kind.body(c.Event).(interface{ GetFault() *outbidv1.NodeFault }); ok {
		return found.GetFault()
	}
	return nil
}

// Cleared reports whether it ended a fault of its node: of which sweep ("" for all), and why.
func (c *Change) Cleared() (sweep, reason string, ok bool) {
	if cleared, is := c.Kind.body(c.Event).(interface {
		faultKey
		GetReason() string
	}); is && c.Did(ClearedOfFault) {
		return cleared.GetSweep(), cleared.GetReason(), true
	}
	return "", "", false
}
