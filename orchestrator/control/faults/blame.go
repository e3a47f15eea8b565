package faults

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/outbid-dev/outbid/orchestrator/limits"
	"github.com/outbid-dev/outbid/orchestrator/sanitize"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// StartFailed completes the event of a trial that could not be started: whether it is excused, and how long it avoids
// the node. It reports whether to blame the node.
func (fs *Faults) StartFailed(s *state.Sweep, t *state.Trial, e *outbidv1.ForkFailed) (blame bool) {
	n := fs.st.Nodes[e.GetNode()]
	if n == nil {
		return false // the trial of a client
	}
	ambiguous := e.GetKind() == outbidv1.FailureKind_FAILURE_KIND_START
	e.Excused = !ambiguous || fs.untried(s, t, n)
	if !e.GetExcused() {
		return false
	}
	times := int32(1)
	if a := t.Avoids(e.GetNode()); a != nil {
		times += a.Starts
	}
	e.AvoidUntil = timestamppb.New(fs.core.Now().Add(keptOffFor(times)))
	return !ambiguous || !s.StartedOn(n)
}

// untried reports whether a node other than n could run a trial and neither the trial nor another of its sweep has
// just failed to start there for an unclear cause.
func (fs *Faults) untried(s *state.Sweep, t *state.Trial, n *state.Node) bool {
	return fs.CouldRun(s, func(o *state.Node) bool {
		a := t.Avoids(o.Info.GetName())
		fault := o.Fault(s.ID)
		return o != n && !(fault.GetAmbiguous() && state.FaultActive(fault, fs.core.Now())) && (a == nil || a.Starts == 0 || !fs.core.Now().Before(a.Until))
	})
}

// Blame records a failed start against the node and its sweep, and against the node alone if there is reason to.
func (fs *Faults) Blame(s *state.Sweep, t *state.Trial, e *outbidv1.ForkFailed) {
	n := fs.st.Nodes[e.GetNode()]
	ambiguous := e.GetKind() == outbidv1.FailureKind_FAILURE_KIND_START
	trial := fmt.Sprintf("%s/%d", s.ID, t.Number)
	reason := sanitize.Line(e.GetDetail(), limits.Detail)
	fs.fault(n, &outbidv1.NodeFault{Sweep: s.ID, Reason: reason, Ambiguous: ambiguous}, trial, 1)
	var trials []string
	tenants := map[string]bool{}
	for _, o := range n.Faults {
		other := fs.st.Sweeps[o.GetSweep()]
		switch {
		case other == nil || o.GetAfterStart():
		case !o.GetAmbiguous():
			trials = append(trials, o.GetTrials()...)
		case fs.st.StartedElsewhere(other, n):
			tenants[state.TenantOf(other.Spec)] = true
		}
	}
	if len(trials) >= 2 || len(tenants) >= 2 {
		fs.fault(n, &outbidv1.NodeFault{Reason: reason}, trial, 1)
	}
}

// SuspectNode records a failure after the start against the node, if trials of the sweep get further on other nodes
// and no trial on this node got as far as the failed one did.
func (fs *Faults) SuspectNode(s *state.Sweep, t *state.Trial, l *state.Lease, e *outbidv1.ForkFailed) {
	n := fs.st.Nodes[e.GetNode()]
	if n == nil {
		return
	}
	further := func(o *state.Lease) bool { return o != l && o.Step-o.FromStep > l.Step-l.FromStep }
	elsewhere := fs.st.TrainedElsewhere(s, n) || slices.ContainsFunc(s.Running, func(number int32) bool {
		o := s.Trials[number].Lead()
		return o != nil && further(o) && o.PlaceOn(e.GetNode()) < 0
	})
	if elsewhere && !slices.ContainsFunc(n.Leases, further) {
		fs.blameAfterStart(n, s, t, "trials fail there and train elsewhere: "+e.GetDetail())
	}
}

// gotFurther records against the nodes on which a trial failed that it got further under the lease l elsewhere.
func (fs *Faults) gotFurther(s *state.Sweep, t *state.Trial, l *state.Lease) {
	for _, a := range t.Avoided {
		n := fs.st.Nodes[a.Node]
		if n != nil && a.Starts == 0 && l.PlaceOn(a.Node) < 0 && t.LastFailure.GetNode() == a.Node && l.Step > t.LastFailure.GetStep() {
			fs.blameAfterStart(n, s, t, "trials fail there and get further elsewhere: "+t.LastFailure.GetDetail())
		}
	}
}

// blameAfterStart makes the trials of a sweep avoid a node once two have failed there after they had started. All
// trials avoid it once this happens to sweeps of two tenants, because one tenant's code can fail anywhere.
func (fs *Faults) blameAfterStart(n *state.Node, s *state.Sweep, t *state.Trial, reason string) {
	trial, reason := fmt.Sprintf("%s/%d", s.ID, t.Number), sanitize.Line(reason, limits.Detail)
	if slices.Contains(n.AfterStart(s.ID).GetTrials(), trial) {
		return
	}
	fs.fault(n, &outbidv1.NodeFault{Sweep: s.ID, Reason: reason, AfterStart: true}, trial, 2)
	tenants := map[string]bool{}
	for _, o := range n.Faults {
		if other := fs.st.Sweeps[o.GetSweep()]; other != nil && o.GetAfterStart() && o.GetTimes() > 0 {
			tenants[state.TenantOf(other.Spec)] = true
		}
	}
	if len(tenants) >= 2 {
		fs.fault(n, &outbidv1.NodeFault{Reason: reason, AfterStart: true}, trial, 1)
	}
}

// StartedWell clears the faults of the nodes on which a trial has just started.
func (fs *Faults) StartedWell(s *state.Sweep, l *state.Lease) {
	for _, p := range l.Places {
		n := fs.st.Nodes[p.Node]
		if n == nil {
			continue
		}
		for _, o := range n.Faults {
			if !o.GetUnfit() && !o.GetAfterStart() && !o.GetManual() && (o.GetSweep() == "" || o.GetSweep() == s.ID) {
				fs.clearFault(n, o, "a trial started there", "")
			}
		}
	}
}

// Trained records that a trial got further under a lease, which counts for the nodes of that lease and against those
// where the trial failed.
func (fs *Faults) Trained(s *state.Sweep, t *state.Trial, l *state.Lease, done bool) {
	if len(t.Avoided) > 0 {
		fs.gotFurther(s, t, l)
	}
	if len(fs.st.Faulty()) == 0 || !done && fs.core.Now().Sub(l.Granted) < state.TrainedWell {
		return
	}
	for _, p := range l.Places {
		n := fs.st.Nodes[p.Node]
		for _, sweep := range []string{"", s.ID} {
			if n != nil && n.AfterStart(sweep) != nil {
				fs.clearFault(n, n.AfterStart(sweep), "a trial trained there", "")
			}
		}
	}
}
