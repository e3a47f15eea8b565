// Package faults decides which nodes trials avoid, from the failures of trials, the checks of workers and the commands of
// administrators.
package faults

import (
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/outbid-dev/outbid/orchestrator/limits"
	"github.com/outbid-dev/outbid/orchestrator/sanitize"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Core is the part of the core that this package needs.
type Core interface {
	// Now returns the time of the current step.
	Now() time.Time
	// Emit decides an event.
	Emit(e *outbidv1.Event)
}

// Faults attributes failures to nodes. Its decisions are in the state; it owns only data that a restart may forget.
type Faults struct {
	core Core
	st   *state.State
	// checks holds the checks of machines, by node.
	checks map[string]*checks
	// next is when the next avoided node may be used again, or zero for never.
	next time.Time
}

// checks are the numbers of a worker's checks of its machine.
type checks struct {
	// latest is the number of the latest check, or 0. probed is its value when a cordoned node became eligible for a
	// retry, or 0 while it is not.
	latest, probed uint64
}

// New returns the Faults of a core that decides on a state.
func New(core Core, st *state.State) *Faults {
	return &Faults{core: core, st: st, checks: map[string]*checks{}}
}

// NextOpening returns when the next avoided node may be used again, or zero for never.
func (fs *Faults) NextOpening() time.Time { return fs.next }

// Reckon computes when the next avoided node may be used again.
func (fs *Faults) Reckon() { fs.next = fs.nextOpening() }

func (fs *Faults) checksOf(node string) *checks {
	c, ok := fs.checks[node]
	if !ok {
		c = &checks{}
		fs.checks[node] = c
	}
	return c
}

// A trial that cannot be started, or fails, may be wrong itself, or its sweep's code or the node may be. The known
// facts decide which trials avoid the node, and which failures count against the trial:
//
//   - The worker blames the node (FAILURE_KIND_NODE: a full disk, no descriptors). The failure never counts against
//     the trial. Once a second trial could not be started there, all trials avoid the node.
//   - The trial could not be started, and the cause is unclear (FAILURE_KIND_START: a program is missing). The
//     sweep's trials avoid the node while another could run them. If a trial of the sweep has started on that node,
//     only this trial avoids it. It fails once every node has been tried. If this happens to sweeps of several
//     tenants that have started elsewhere, all trials avoid the node.
//   - The trial failed after it had started. It is restarted on another node first, if one can run it. A fork's
//     failure does not restart it, so the next fork slot may use the node. Once two trials of a sweep failed there
//     and got further elsewhere, or others of the sweep did, the sweep's trials avoid the node while another could
//     run them. All trials do if this happens to sweeps of several tenants.
//
// While other nodes can run it, a trial does not return to a node on which it could not be started until some trial
// has started there. Otherwise a policy that prefers that node would send it there forever.
//
// A node is avoided for firstBackoff, then twice as long each time, up to longestBackoff. The third time it is
// cordoned: it is retried only after its worker's checks have passed as well. A trial that starts there ends all of
// this.
const (
	firstBackoff   = 10 * time.Second
	longestBackoff = 10 * time.Minute
	cordonAfter    = 3
	// SoftAvoid is how long a trial that failed after it had started avoids a node if another can run it, unless a
	// trial of its sweep trains well there before.
	SoftAvoid = time.Hour
	// faultTrials is the maximum number of trials that a fault names.
	faultTrials = 8
)

// keptOffFor returns how long a node is avoided the n-th time in a row, counted from 1.
func keptOffFor(n int32) time.Duration {
	return min(longestBackoff, firstBackoff<<min(max(n-1, 0), 10))
}

// fault makes trials avoid a node for a while, once at least least of them have failed there. A trial that was
// already on its way only adds its name.
func (fs *Faults) fault(n *state.Node, fault *outbidv1.NodeFault, trial string, least int) {
	old := n.Fault(fault.GetSweep())
	if fault.GetAfterStart() {
		old = n.AfterStart(fault.GetSweep())
	}
	fault.Since, fault.Trials = timestamppb.New(fs.core.Now()), slices.Clone(old.GetTrials())
	if old != nil {
		fault.Since = old.GetSince()
	}
	fresh := !slices.Contains(fault.GetTrials(), trial) && len(fault.GetTrials()) < faultTrials
	if fresh {
		fault.Trials = append(fault.GetTrials(), trial)
	}
	switch {
	case state.FaultActive(old, fs.core.Now()):
		if !fresh {
			return
		}
		fault.Until, fault.Times, fault.Cordoned, fault.Reason = old.GetUntil(), old.GetTimes(), old.GetCordoned(), old.GetReason()
	case len(fault.GetTrials()) >= least:
		fault.Times = old.GetTimes() + 1
		fault.Until = timestamppb.New(fs.core.Now().Add(keptOffFor(fault.GetTimes())))
		fault.Cordoned = fault.GetSweep() == "" && fault.GetTimes() >= cordonAfter
	}
	fs.emitFault(n, fault)
}

func (fs *Faults) emitFault(n *state.Node, fault *outbidv1.NodeFault) {
	fs.core.Emit(&outbidv1.Event{Kind: &outbidv1.Event_NodeFaulted{NodeFaulted: &outbidv1.NodeFaulted{Node: n.Info.GetName(), Fault: fault}}})
}

// clearFault ends a fault. actor is the administrator who asked for it, or empty.
func (fs *Faults) clearFault(n *state.Node, fault *outbidv1.NodeFault, reason, actor string) {
	fs.core.Emit(&outbidv1.Event{Kind: &outbidv1.Event_NodeCleared{NodeCleared: &outbidv1.NodeCleared{
		Node: n.Info.GetName(), Sweep: fault.GetSweep(), Unfit: fault.GetUnfit(), AfterStart: fault.GetAfterStart(),
		Manual: fault.GetManual(), Reason: reason, Actor: actor,
	}}})
}

// Forget clears the faults of a sweep that has ended.
func (fs *Faults) Forget(s *state.Sweep) {
	for _, n := range fs.st.Faulty() {
		for _, o := range n.Faults {
			if o.GetSweep() == s.ID {
				fs.clearFault(n, o, "the sweep has ended", "")
			}
		}
	}
}

// mended clears what the checks of a node's worker found, and the faults of starts that failed because of the node.
func (fs *Faults) mended(n *state.Node) {
	for _, o := range n.Faults {
		if o.GetUnfit() || !o.GetAmbiguous() && !o.GetAfterStart() && !o.GetManual() {
			fs.clearFault(n, o, "the checks of its worker pass", "")
		}
	}
}

// Health records the results of a worker's checks of its machine. It returns why the node ends soon if the worker says so for
// the first time, or "".
func (fs *Faults) Health(n *state.Node, h *outbidv1.NodeHealth) (ends string) {
	if h == nil {
		return ""
	}
	fs.checksOf(n.Info.GetName()).latest = h.GetCheck()
	old := n.Unfit()
	if len(h.GetUnfit()) == 0 {
		if old != nil {
			fs.mended(n)
		}
		return ""
	}
	reason := sanitize.Line(h.GetUnfit()[0], limits.Detail)
	if more := len(h.GetUnfit()) - 1; more > 0 {
		reason = sanitize.Line(fmt.Sprintf("%s (and %d more)", reason, more), limits.Detail)
	}
	if old.GetReason() != reason || old.GetDrained() != h.GetEnding() {
		fs.emitFault(n, &outbidv1.NodeFault{Reason: reason, Since: timestamppb.New(fs.core.Now()), Unfit: true, Drained: h.GetEnding()})
	}
	if h.GetEnding() && !old.GetDrained() {
		return reason
	}
	return ""
}

// Left clears what the worker of a node said about its machine, because the worker has left.
func (fs *Faults) Left(n *state.Node) {
	if o := n.Unfit(); o != nil {
		fs.clearFault(n, o, "its worker stopped", "")
	}
}

// OpenAgain opens the cordoned nodes that may be retried, and computes when the next node may be.
func (fs *Faults) OpenAgain() {
	for _, n := range fs.st.Faulty() {
		fs.Readmit(n)
	}
	fs.Reckon()
}

// Readmit opens cordoned nodes whose time is over and whose worker's checks have passed since. The fault remains and
// continues to count if the next start fails.
func (fs *Faults) Readmit(n *state.Node) {
	for _, fault := range n.Faults {
		if fault.GetCordoned() && !fs.core.Now().Before(fault.GetUntil().AsTime()) && n.Unfit() == nil {
			fs.readmitAfter(n, fault)
		}
	}
}

func (fs *Faults) readmitAfter(n *state.Node, fault *outbidv1.NodeFault) {
	c := fs.checksOf(n.Info.GetName())
	if c.latest > 0 { // the worker makes checks: one that began after the time was over has to pass
		if c.probed == 0 {
			c.probed = c.latest
		}
		if c.latest < c.probed+2 {
			return
		}
	}
	c.probed = 0
	open := proto.CloneOf(fault)
	open.Until, open.Cordoned = timestamppb.New(fs.core.Now()), false
	fs.emitFault(n, open)
}

// nextOpening returns when the first avoided node may be used again, or zero for never.
func (fs *Faults) nextOpening() time.Time {
	var next time.Time
	sooner := func(at time.Time) {
		if at.After(fs.core.Now()) && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	for _, n := range fs.st.Faulty() {
		for _, o := range n.Faults {
			if !o.GetUnfit() {
				sooner(o.GetUntil().AsTime())
			}
		}
	}
	for t := range fs.st.Avoiding() {
		for _, a := range t.Avoided {
			sooner(a.Until)
		}
	}
	return next
}
