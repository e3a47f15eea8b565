package nodes

import (
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/outbid-dev/outbid/orchestrator/limits"
	"github.com/outbid-dev/outbid/orchestrator/sanitize"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Renewals is the increment of the generation of orders. Renewals of the same orders use the numbers in between, so
// that workers never take a renewal for newer than the next orders.
const Renewals = 1 << 16

// Orders makes orders for every node that changed or was just seen.
func (ns *Nodes) Orders() []*outbidv1.Orders {
	if ns.core.Failed() {
		return nil
	}
	var all []*outbidv1.Orders
	for _, name := range slices.Sorted(maps.Keys(ns.ordersDue)) {
		if o := ns.orders(name, ns.contact(name)); o != nil {
			all = append(all, o)
		}
	}
	clear(ns.ordersDue)
	return all
}

// orders returns everything that a node should be doing. It omits the bodies that the node already has. The lease
// counts from when the node was last seen, like the time until its loss. Otherwise a node whose uplinks are lost and
// whose orders arrive would run longer than one that is cut off altogether.
func (ns *Nodes) orders(name string, l *nodeContact) *outbidv1.Orders {
	l.generation += Renewals
	o := &outbidv1.Orders{
		Node: name, Boot: l.boot, Generation: l.generation, Term: ns.set.Term, Store: ns.set.Store,
		Lease: durationpb.New(max(0, ns.set.Lease-ns.core.Now().Sub(l.seen))), Hello: l.hello, Tenants: ns.set.Tenants,
		Refused: l.refused,
	}
	if beat := ns.beat(); beat > beatEvery {
		o.Beat = durationpb.New(beat)
	}
	n := ns.st.Nodes[name]
	if n == nil || l.boot == "" {
		if l.boot == "" {
			return nil // not seen since this server started
		}
		return o
	}
	if n.Info.GetBoot() != l.boot {
		return o
	}
	o.AckedSeq = n.SeenSeq
	said, bodies := l.said, 0
	l.said = make(map[uint64]*outbidv1.Assignment, len(n.Leases))
	for _, lease := range n.Leases {
		a, err := ns.assignment(name, lease, l.taken[lease.ID] == 0 && bodies < bodiesPerOrders, said[lease.ID])
		if err != nil {
			ns.unordered = append(ns.unordered, unordered{lease, err})
			continue
		}
		if a.GetBody() != nil {
			bodies += proto.Size(a)
		}
		o.Assignments = append(o.Assignments, a)
		l.said[lease.ID] = a
	}
	o.Consolidations = ns.merging.Consolidations(n)
	return o
}

// bodiesPerOrders is the maximum size in bytes of the new assignments' bodies in one orders message. The others
// follow once the node has accepted these.
const bodiesPerOrders = 512 << 10

// unordered is a lease for which no orders can be made.
type unordered struct {
	lease *state.Lease
	err   error
}

// Unordered reports whether FailUnordered has something to do.
func (ns *Nodes) Unordered() bool { return len(ns.unordered) > 0 }

// FailUnordered fails only the trials for which no orders could be made.
func (ns *Nodes) FailUnordered() {
	for _, u := range ns.unordered {
		s := ns.st.Sweeps[u.lease.Sweep]
		if s == nil || s.Trials[u.lease.Trial].Held(u.lease.ID) == nil {
			continue
		}
		t := s.Trials[u.lease.Trial]
		if !t.Done() {
			reason := "cannot make orders for it: " + sanitize.Line(u.err.Error(), limits.Detail)
			ns.core.Note(s.ID, &t.Number, "error", "failed for good: %s", reason)
			ns.trials.End(s, t, outbidv1.TrialState_TRIAL_STATE_FAILED, reason, false)
		}
		// The lease was never sent to a worker, so it can end at once.
		if l := t.Held(u.lease.ID); l != nil {
			ns.trials.EndLease(s, t, l, "cannot make orders for it")
		}
	}
	ns.unordered = nil
}

// assignment returns what a node should do for one lease. It returns before, the last assignment that was sent, if
// that is unchanged.
func (ns *Nodes) assignment(
	node string, l *state.Lease, withBody bool, before *outbidv1.Assignment,
) (*outbidv1.Assignment, error) {
	s := ns.st.Sweeps[l.Sweep]
	t := s.Trials[l.Trial]
	verdict := outbidv1.Verdict_VERDICT_TRAIN
	switch l.Revoking {
	case outbidv1.RevokeKind_REVOKE_KIND_PAUSE:
		verdict = outbidv1.Verdict_VERDICT_PAUSE
	case outbidv1.RevokeKind_REVOKE_KIND_STOP:
		verdict = outbidv1.Verdict_VERDICT_STOP
	}
	until, rate := t.Until(l), ns.tenants.ReportShare(s)
	if !withBody && before != nil && before.Body == nil && before.Version == l.Version && before.Verdict == verdict &&
		before.UntilStep == until && before.Reason == t.Reason && before.ReportRate == rate {
		return before, nil
	}
	a := &outbidv1.Assignment{
		Fork: l.Fork(), Version: l.Version, Verdict: verdict, UntilStep: until, Reason: t.Reason, ReportRate: rate,
	}
	if !withBody {
		return a, nil
	}
	body, err := ns.body(node, s, t, l)
	a.Body = body
	return a, err
}
