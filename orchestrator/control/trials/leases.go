package trials

import (
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Alone reports whether a trial must run alone on its nodes.
func Alone(t *state.Trial) bool { return t.Suspected && !t.Done() }

// TellForks sends a trial's forks their later target. The worker may not have been seen in this step, because a
// remote tuner answers later.
func (ts *Trials) TellForks(s *state.Sweep, t *state.Trial) {
	for _, l := range slices.Clone(t.Leases) {
		if l.Gang() && s.Spec.GetFunction() == nil {
			// The other programs have ended at the old target and wait there. All of them start again together.
			ts.RevokeLease(s, t, l, outbidv1.RevokeKind_REVOKE_KIND_PAUSE, "its gang continues from the checkpoint on all its nodes")
			continue
		}
		ts.core.OrdersDue(l.Rank0())
	}
}

// Revoke revokes all leases of a trial.
func (ts *Trials) Revoke(s *state.Sweep, t *state.Trial, how outbidv1.RevokeKind, reason string) {
	for _, l := range slices.Clone(t.Leases) {
		ts.RevokeLease(s, t, l, how, reason)
	}
}

// RevokeLease asks the nodes of a lease to end its fork. A client's lease ends at once, because it has no process on
// a worker.
func (ts *Trials) RevokeLease(s *state.Sweep, t *state.Trial, l *state.Lease, how outbidv1.RevokeKind, reason string) {
	if l.Revoking == how || l.Revoking == outbidv1.RevokeKind_REVOKE_KIND_STOP {
		return
	}
	ts.core.Emit(&outbidv1.Event{Kind: &outbidv1.Event_LeaseRevoked{LeaseRevoked: &outbidv1.LeaseRevoked{
		Sweep: s.ID, Trial: t.Number, LeaseId: l.ID, How: how, Reason: reason,
	}}})
	if l.Holder == state.Client {
		ts.EndLease(s, t, l, reason)
	}
}

// EndLease records that nothing runs under a lease any more.
func (ts *Trials) EndLease(s *state.Sweep, t *state.Trial, l *state.Lease, reason string) {
	shards := l.Shards
	ts.core.Emit(&outbidv1.Event{Kind: &outbidv1.Event_LeaseEnded{LeaseEnded: &outbidv1.LeaseEnded{
		Sweep: s.ID, Trial: t.Number, LeaseId: l.ID, Reason: reason, DeviceSeconds: l.DeviceSeconds(ts.core.Now()),
	}}})
	for _, shard := range shards { // their checkpoint can no longer be completed
		ts.deleteShard(s, t, l, shard)
	}
	if t.Slot == nil && t.From().GetKey() != t.Probation.GetKey() {
		ts.averages.AcceptAverage(t)
	}
	ts.Drop(s, t)
}

// leave ends a lease on one node: the whole lease if it has no other places left. Otherwise the rest of the gang is
// ended too, and the lease with its last place.
func (ts *Trials) leave(s *state.Sweep, t *state.Trial, l *state.Lease, node, reason string) {
	if !l.Gang() {
		ts.EndLease(s, t, l, reason)
		return
	}
	ts.core.Emit(&outbidv1.Event{Kind: &outbidv1.Event_PlaceEnded{PlaceEnded: &outbidv1.PlaceEnded{
		Sweep: s.ID, Trial: t.Number, LeaseId: l.ID, Node: node, Reason: reason,
	}}})
	if l.Over() {
		ts.EndLease(s, t, l, reason)
	}
}

// StartOf returns the checkpoint that a lease's fork starts from. It is the same for all forks of a slot.
func StartOf(t *state.Trial, l *state.Lease) *outbidv1.Checkpoint {
	if t.Part(l) != nil {
		return t.Slot.Start
	}
	return t.From()
}
