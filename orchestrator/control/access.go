package control

import (
	"fmt"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/control/merging"
	"github.com/outbid-dev/outbid/orchestrator/limits"
	"github.com/outbid-dev/outbid/orchestrator/objects"
	"github.com/outbid-dev/outbid/orchestrator/spec"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Access reports which objects of the store are in use, and which of them a node may read or write.
type Access struct {
	views *views
	// limits of a tenant, or nil if nothing is limited.
	limits  func(tenant string, set *outbidv1.Tenant) limits.Tenant
	deletes *deleter
}

// MayReach returns why a node may not read or store an object, or nil if it may. A node may reach, for a trial whose
// lease it holds, what the trial starts from, its sweep's function, and the checkpoints that it saves under this
// lease.
func (a *Access) MayReach(req *outbidv1.AccessRequest) error {
	ref := req.GetFork()
	if mayConsolidate(a.views.load(), req) {
		return nil
	}
	s, t, place := holder(a.views.load(), req.GetNode(), ref)
	if t == nil {
		return fmt.Errorf("node %s holds no lease %d of trial %d of %s", req.GetNode(), ref.GetLeaseId(), ref.GetTrial(), ref.GetSweep())
	}
	if req.GetWrite() {
		if maySave(s, t, t.Held(ref.GetLeaseId()), place, req.GetKey()) {
			return a.MayKeep(s.ID, req.GetBytes())
		}
		return fmt.Errorf("%s: trial %d of %s may not save this checkpoint under lease %d", req.GetKey(), t.Number, s.ID, ref.GetLeaseId())
	}
	if f := s.Spec.GetFunction(); f != nil && req.GetKey() == objects.BlobKey(f.GetBlob()) {
		return nil
	}
	key := req.GetKey()
	if ck, _, ok := objects.ParseShard(key); ok {
		key = ck.Key()
	}
	named := func(c *outbidv1.Checkpoint) bool { return c.GetKey() == key }
	if t.Start != nil && named(t.Start) || slices.ContainsFunc(t.Checkpoints, named) {
		return nil
	}
	return fmt.Errorf("%s: trial %d of %s does not start from this object", req.GetKey(), t.Number, s.ID)
}

// maySave reports whether a place of a lease may store an object: the first place checkpoints of this lease, and every
// place the shards of its ranks. A complete checkpoint with shards is not replaced.
func maySave(s *state.Sweep, t *state.Trial, l *state.Lease, place int, key string) bool {
	if ck, rank, ok := objects.ParseShard(key); ok {
		first, count := l.Ranks(spec.PerDevice(s.Spec), place)
		return ck.Of(s.ID, l.Trial, l.ID) && rank >= first && rank < first+count && t.Sharded(l, ck.Step) == nil
	}
	ck, ok := objects.ParseCheckpoint(key)
	return place == 0 && ok && ck.Of(s.ID, l.Trial, l.ID) && (ck.Format != objects.Sharded || t.Sharded(l, ck.Step) == nil)
}

// MayKeep returns why a checkpoint of this size may not be stored for a sweep now, or nil if it may. The error is a
// state.LimitError if the checkpoints of the sweep's tenant would exceed its limit.
func (a *Access) MayKeep(sweep string, bytes int64) error {
	v := a.views.load()
	s, err := v.Sweep(sweep)
	if a.limits == nil || err != nil {
		return nil //nolint:nilerr // a sweep that is gone is not bounded: what it stores is deleted
	}
	tenant := state.TenantOf(s.Sweep().Spec)
	most := a.limits(tenant, v.Tenant(tenant)).CheckpointBytes
	if kept := v.CheckpointBytes(tenant); most != limits.Unlimited && kept+bytes > most {
		return &state.LimitError{Limit: "checkpoint_bytes", Tenant: tenant, Text: fmt.Sprintf("the checkpoints of tenant %s take %d bytes and this "+
			"one %d; the limit is %d; delete sweeps that are no longer needed", tenant, kept, bytes, most)}
	}
	return nil
}

// holder returns the trial whose lease a node holds, and the index of the node among the places of a gang, or -1 if
// the node does not hold that lease.
func holder(v *view, node string, ref *outbidv1.ForkRef) (*state.Sweep, *state.Trial, int) {
	s, err := v.Sweep(ref.GetSweep())
	if err != nil {
		return nil, nil, -1
	}
	t, err := s.Trial(ref.GetTrial())
	if err != nil {
		return nil, nil, -1
	}
	l := t.Held(ref.GetLeaseId())
	if l == nil || l.PlaceOn(node) < 0 {
		return nil, nil, -1
	}
	return s.Sweep(), t, l.PlaceOn(node)
}

// EachPlace calls f for every node that holds a lease, with the tenant of its trial.
func (a *Access) EachPlace(f func(node string, fork *outbidv1.ForkRef, tenant string)) {
	v := a.views.load()
	for _, id := range v.SweepIDs {
		s, err := v.Sweep(id)
		if err != nil {
			continue
		}
		for _, number := range s.Sweep().Running {
			t, err := s.Trial(number)
			if err != nil {
				continue
			}
			for _, lease := range t.Leases {
				for _, place := range lease.Places {
					f(place.Node, lease.Fork(), state.TenantOf(s.Sweep().Spec))
				}
			}
		}
	}
}

// mayConsolidate reports whether a node reads or stores an object for an average that it was ordered to compute.
func mayConsolidate(v *view, req *outbidv1.AccessRequest) bool {
	s, err := v.Sweep(req.GetFork().GetSweep())
	if err != nil {
		return false
	}
	t, err := s.Trial(req.GetFork().GetTrial())
	if err != nil || !t.Consolidating() || t.Slot.Node != req.GetNode() {
		return false
	}
	order := merging.Consolidation(s.Sweep(), t)
	key, start := req.GetKey(), order.GetOuter().GetStart()
	switch {
	case req.GetWrite():
		return key == order.GetKey() || order.GetOuter() != nil && key == objects.OuterKey(order.GetKey())
	case start != nil && (key == start.GetKey() || start.GetOuter() != nil && key == objects.OuterKey(start.GetKey())):
		return true
	}
	return slices.ContainsFunc(order.GetSources(), func(src *outbidv1.ConsolidationSource) bool {
		return src.GetCheckpoint().GetKey() == key
	})
}
