package control

import (
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/limits"
	"github.com/outbid-dev/outbid/orchestrator/sanitize"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

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
	// softAvoid is how long a trial that failed after it had started avoids a node if another can run it, unless a
	// trial of its sweep trains well there before.
	softAvoid = time.Hour
	// faultTrials is the maximum number of trials that a fault names.
	faultTrials = 8
)

// keptOffFor returns how long a node is avoided the n-th time in a row, counted from 1.
func keptOffFor(n int32) time.Duration {
	return min(longestBackoff, firstBackoff<<min(max(n-1, 0), 10))
}

// startFailed completes the event of a trial that could not be started: whether it is excused, and how long it avoids
// the node. It reports whether to blame the node.
func (c *Core) startFailed(s *state.Sweep, t *state.Trial, e *outbidv1.ForkFailed) (blame bool) {
	n := c.st.Nodes[e.GetNode()]
	if n == nil {
		return false // the trial of a client
	}
	ambiguous := e.GetKind() == outbidv1.FailureKind_FAILURE_KIND_START
	e.Excused = !ambiguous || c.untried(s, t, n)
	if !e.GetExcused() {
		return false
	}
	times := int32(1)
	if a := t.Avoids(e.GetNode()); a != nil {
		times += a.Starts
	}
	e.AvoidUntil = timestamppb.New(c.now.Add(keptOffFor(times)))
	return !ambiguous || !s.StartedOn(n)
}

// untried reports whether a node other than n could run a trial and neither the trial nor another of its sweep has
// just failed to start there for an unclear cause.
func (c *Core) untried(s *state.Sweep, t *state.Trial, n *state.Node) bool {
	return c.couldRun(s, func(o *state.Node) bool {
		a := t.Avoids(o.Info.GetName())
		fault := o.Fault(s.ID)
		return o != n && !(fault.GetAmbiguous() && state.FaultActive(fault, c.now)) && (a == nil || a.Starts == 0 || !c.now.Before(a.Until))
	})
}

// refuses reports whether the trials of a sweep avoid a node because of failures there that may be their own.
func (c *Core) refuses(n *state.Node, s *state.Sweep) bool {
	start := n.Fault(s.ID)
	return start.GetAmbiguous() && state.FaultActive(start, c.now) || state.FaultActive(n.AfterStart(s.ID), c.now)
}

// couldRun reports whether the nodes for which usable returns true could run a trial of a sweep if they were
// otherwise idle.
func (c *Core) couldRun(s *state.Sweep, usable func(*state.Node) bool) bool {
	var nodes []cluster.Node
	for _, name := range c.st.NodeNames {
		if n := c.st.Nodes[name]; n.Up() && !n.Shape.Draining && usable(n) {
			nodes = append(nodes, n.Shape)
		}
	}
	_, ok := cluster.NewCapacity(nodes).Best(s.Terms.Demand)
	return ok
}

// blame records a failed start against the node and its sweep, and against the node alone if there is reason to.
func (c *Core) blame(s *state.Sweep, t *state.Trial, e *outbidv1.ForkFailed) {
	n := c.st.Nodes[e.GetNode()]
	ambiguous := e.GetKind() == outbidv1.FailureKind_FAILURE_KIND_START
	trial := fmt.Sprintf("%s/%d", s.ID, t.Number)
	reason := sanitize.Line(e.GetDetail(), limits.Detail)
	c.fault(n, &outbidv1.NodeFault{Sweep: s.ID, Reason: reason, Ambiguous: ambiguous}, trial, 1)
	var trials []string
	tenants := map[string]bool{}
	for _, o := range n.Faults {
		other := c.st.Sweeps[o.GetSweep()]
		switch {
		case other == nil || o.GetAfterStart():
		case !o.GetAmbiguous():
			trials = append(trials, o.GetTrials()...)
		case c.st.StartedElsewhere(other, n):
			tenants[state.TenantOf(other.Spec)] = true
		}
	}
	if len(trials) >= 2 || len(tenants) >= 2 {
		c.fault(n, &outbidv1.NodeFault{Reason: reason}, trial, 1)
	}
}

// suspectNode records a failure after the start against the node, if trials of the sweep get further on other nodes
// and no trial on this node got as far as the failed one did.
func (c *Core) suspectNode(s *state.Sweep, t *state.Trial, l *state.Lease, e *outbidv1.ForkFailed) {
	n := c.st.Nodes[e.GetNode()]
	if n == nil {
		return
	}
	further := func(o *state.Lease) bool { return o != l && o.Step-o.FromStep > l.Step-l.FromStep }
	elsewhere := c.st.TrainedElsewhere(s, n) || slices.ContainsFunc(s.Running, func(number int32) bool {
		o := s.Trials[number].Lead()
		return o != nil && further(o) && o.PlaceOn(e.GetNode()) < 0
	})
	if elsewhere && !slices.ContainsFunc(n.Leases, further) {
		c.blameAfterStart(n, s, t, "trials fail there and train elsewhere: "+e.GetDetail())
	}
}

// gotFurther records against the nodes on which a trial failed that it got further under the lease l elsewhere.
func (c *Core) gotFurther(s *state.Sweep, t *state.Trial, l *state.Lease) {
	for _, a := range t.Avoided {
		n := c.st.Nodes[a.Node]
		if n != nil && a.Starts == 0 && l.PlaceOn(a.Node) < 0 && t.LastFailure.GetNode() == a.Node && l.Step > t.LastFailure.GetStep() {
			c.blameAfterStart(n, s, t, "trials fail there and get further elsewhere: "+t.LastFailure.GetDetail())
		}
	}
}

// blameAfterStart makes the trials of a sweep avoid a node once two have failed there after they had started. All
// trials avoid it once this happens to sweeps of two tenants, because one tenant's code can fail anywhere.
func (c *Core) blameAfterStart(n *state.Node, s *state.Sweep, t *state.Trial, reason string) {
	trial, reason := fmt.Sprintf("%s/%d", s.ID, t.Number), sanitize.Line(reason, limits.Detail)
	if slices.Contains(n.AfterStart(s.ID).GetTrials(), trial) {
		return
	}
	c.fault(n, &outbidv1.NodeFault{Sweep: s.ID, Reason: reason, AfterStart: true}, trial, 2)
	tenants := map[string]bool{}
	for _, o := range n.Faults {
		if other := c.st.Sweeps[o.GetSweep()]; other != nil && o.GetAfterStart() && o.GetTimes() > 0 {
			tenants[state.TenantOf(other.Spec)] = true
		}
	}
	if len(tenants) >= 2 {
		c.fault(n, &outbidv1.NodeFault{Reason: reason, AfterStart: true}, trial, 1)
	}
}

// fault makes trials avoid a node for a while, once at least least of them have failed there. A trial that was
// already on its way only adds its name.
func (c *Core) fault(n *state.Node, fault *outbidv1.NodeFault, trial string, least int) {
	old := n.Fault(fault.GetSweep())
	if fault.GetAfterStart() {
		old = n.AfterStart(fault.GetSweep())
	}
	fault.Since, fault.Trials = timestamppb.New(c.now), slices.Clone(old.GetTrials())
	if old != nil {
		fault.Since = old.GetSince()
	}
	fresh := !slices.Contains(fault.GetTrials(), trial) && len(fault.GetTrials()) < faultTrials
	if fresh {
		fault.Trials = append(fault.GetTrials(), trial)
	}
	switch {
	case state.FaultActive(old, c.now):
		if !fresh {
			return
		}
		fault.Until, fault.Times, fault.Cordoned, fault.Reason = old.GetUntil(), old.GetTimes(), old.GetCordoned(), old.GetReason()
	case len(fault.GetTrials()) >= least:
		fault.Times = old.GetTimes() + 1
		fault.Until = timestamppb.New(c.now.Add(keptOffFor(fault.GetTimes())))
		fault.Cordoned = fault.GetSweep() == "" && fault.GetTimes() >= cordonAfter
	}
	c.emitFault(n, fault)
}

func (c *Core) emitFault(n *state.Node, fault *outbidv1.NodeFault) {
	c.emit(&outbidv1.Event{Kind: &outbidv1.Event_NodeFaulted{NodeFaulted: &outbidv1.NodeFaulted{Node: n.Info.GetName(), Fault: fault}}})
}

func (c *Core) clearFault(n *state.Node, fault *outbidv1.NodeFault, reason string) {
	c.emit(&outbidv1.Event{Kind: &outbidv1.Event_NodeCleared{NodeCleared: &outbidv1.NodeCleared{
		Node: n.Info.GetName(), Sweep: fault.GetSweep(), Unfit: fault.GetUnfit(), AfterStart: fault.GetAfterStart(), Reason: reason,
	}}})
}

// forgetFaults clears the faults of a sweep that has ended.
func (c *Core) forgetFaults(s *state.Sweep) {
	for _, n := range c.st.Faulty() {
		for _, o := range n.Faults {
			if o.GetSweep() == s.ID {
				c.clearFault(n, o, "the sweep has ended")
			}
		}
	}
}

// startedWell clears the faults of the nodes on which a trial has just started.
func (c *Core) startedWell(s *state.Sweep, l *state.Lease) {
	for _, p := range l.Places {
		n := c.st.Nodes[p.Node]
		if n == nil {
			continue
		}
		for _, o := range n.Faults {
			if !o.GetUnfit() && !o.GetAfterStart() && (o.GetSweep() == "" || o.GetSweep() == s.ID) {
				c.clearFault(n, o, "a trial started there")
			}
		}
	}
}

// trained records that a trial got further under a lease, which counts for the nodes of that lease and against those
// where the trial failed.
func (c *Core) trained(s *state.Sweep, t *state.Trial, l *state.Lease, done bool) {
	if len(t.Avoided) > 0 {
		c.gotFurther(s, t, l)
	}
	if len(c.st.Faulty()) == 0 || !done && c.now.Sub(l.Granted) < state.TrainedWell {
		return
	}
	for _, p := range l.Places {
		n := c.st.Nodes[p.Node]
		for _, sweep := range []string{"", s.ID} {
			if n != nil && n.AfterStart(sweep) != nil {
				c.clearFault(n, n.AfterStart(sweep), "a trial trained there")
			}
		}
	}
}

// health records the results of a worker's checks of its machine.
func (c *Core) health(n *state.Node, l *nodeContact, h *outbidv1.NodeHealth) {
	if h == nil {
		return
	}
	l.check = h.GetCheck()
	old := n.Unfit()
	if len(h.GetUnfit()) == 0 {
		if old != nil {
			c.mended(n)
		}
		return
	}
	reason := sanitize.Line(h.GetUnfit()[0], limits.Detail)
	if more := len(h.GetUnfit()) - 1; more > 0 {
		reason = sanitize.Line(fmt.Sprintf("%s (and %d more)", reason, more), limits.Detail)
	}
	if old.GetReason() != reason {
		c.emitFault(n, &outbidv1.NodeFault{Reason: reason, Since: timestamppb.New(c.now), Unfit: true})
	}
}

// mended clears what the checks of a node's worker found, and the faults of starts that failed because of the node.
func (c *Core) mended(n *state.Node) {
	for _, o := range n.Faults {
		if o.GetUnfit() || !o.GetAmbiguous() && !o.GetAfterStart() {
			c.clearFault(n, o, "the checks of its worker pass")
		}
	}
}

// readmit opens cordoned nodes whose time is over and whose worker's checks have passed since. The fault remains and
// continues to count if the next start fails.
func (c *Core) readmit(n *state.Node) {
	for _, fault := range n.Faults {
		if fault.GetCordoned() && !c.now.Before(fault.GetUntil().AsTime()) && n.Unfit() == nil {
			c.readmitAfter(n, fault)
		}
	}
}

func (c *Core) readmitAfter(n *state.Node, fault *outbidv1.NodeFault) {
	l := c.contact(n.Info.GetName())
	if l.check > 0 { // the worker makes checks: one that began after the time was over has to pass
		if l.probed == 0 {
			l.probed = l.check
		}
		if l.check < l.probed+2 {
			return
		}
	}
	l.probed = 0
	open := proto.CloneOf(fault)
	open.Until, open.Cordoned = timestamppb.New(c.now), false
	c.emitFault(n, open)
}

// keptOff returns the nodes that are not given new trials, because their workers say so or trials could not be
// started there.
func (c *Core) keptOff() map[string]bool {
	var off map[string]bool
	for _, n := range c.st.Faulty() {
		if n.KeepsOff(c.now) != nil {
			if off == nil {
				off = map[string]bool{}
			}
			off[n.Info.GetName()] = true
		}
	}
	return off
}

// avoids returns the nodes that a trial of a sweep must not be given now. If t is nil, it returns those of the whole
// sweep.
func (c *Core) avoids(s *state.Sweep, t *state.Trial) []string {
	var avoid []string
	refused := false
	for _, n := range c.st.Faulty() {
		refuses := c.refuses(n, s)
		if refused = refused || refuses; refuses || state.FaultActive(n.Fault(s.ID), c.now) {
			avoid = append(avoid, n.Info.GetName())
		}
	}
	// If no other node is left, let the sweep find out that its own code is wrong.
	if refused && !c.couldRun(s, func(n *state.Node) bool { return !c.refuses(n, s) }) {
		avoid = slices.DeleteFunc(avoid, func(name string) bool { return c.refuses(c.st.Nodes[name], s) })
	}
	if t == nil || len(t.Avoided) == 0 {
		return avoid
	}
	var soft []string
	for _, a := range t.Avoided {
		switch over := !c.now.Before(a.Until); {
		case c.st.Nodes[a.Node] == nil || slices.Contains(avoid, a.Node):
		case a.Starts > 0 && !over:
			avoid = append(avoid, a.Node)
		case a.Starts > 0 || !over:
			soft = append(soft, a.Node)
		}
	}
	off := slices.Concat(avoid, soft)
	if len(soft) > 0 && c.couldRun(s, func(n *state.Node) bool {
		return !slices.Contains(off, n.Info.GetName()) && n.KeepsOff(c.now) == nil
	}) {
		avoid = off
	}
	slices.Sort(avoid)
	return avoid
}

// offLimits returns a node of a grant that the trial must avoid, or "".
func (c *Core) offLimits(s *state.Sweep, t *state.Trial, g *outbidv1.LeaseGranted) string {
	if len(c.st.Faulty()) == 0 && len(t.Avoided) == 0 {
		return ""
	}
	avoid := c.avoids(s, t)
	for _, p := range g.GetPlaces() {
		if slices.Contains(avoid, p.GetNode()) || c.st.Nodes[p.GetNode()].KeepsOff(c.now) != nil {
			return p.GetNode()
		}
	}
	return ""
}

// openNodesAgain opens the cordoned nodes that may be retried, and computes when the next node may be.
func (c *Core) openNodesAgain() {
	for _, n := range c.st.Faulty() {
		c.readmit(n)
	}
	c.opening = c.nextOpening()
}

// nextOpening returns when the first avoided node may be used again, or zero for never.
func (c *Core) nextOpening() time.Time {
	var next time.Time
	sooner := func(at time.Time) {
		if at.After(c.now) && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	for _, n := range c.st.Faulty() {
		for _, o := range n.Faults {
			if !o.GetUnfit() {
				sooner(o.GetUntil().AsTime())
			}
		}
	}
	for t := range c.st.Avoiding() {
		for _, a := range t.Avoided {
			sooner(a.Until)
		}
	}
	return next
}
