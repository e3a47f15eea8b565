package state

import (
	"slices"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// sweepIndex owns the sweeps, their order and their names, and the records of deleted ones.
type sweepIndex struct {
	// Sweeps by ID. SweepIDs are in order of submission.
	Sweeps   map[string]*Sweep
	SweepIDs []string
	// Live are the sweeps that have not ended, in order of submission.
	Live []*Sweep

	// deleted holds deleted sweeps by ID. nextOrder is the order of the next sweep.
	deleted   map[string]Deleted
	nextOrder int
	// names counts the sweeps of each name, and keys maps idempotency keys to the IDs of sweeps.
	names map[string]int64
	keys  map[string]string
}

func (x *sweepIndex) addSweep(s *Sweep) {
	x.nextOrder = max(x.nextOrder, s.Order+1)
	x.Sweeps[s.ID] = s
	x.SweepIDs = append(x.SweepIDs, s.ID)
	if s.IdempotencyKey != "" {
		x.keys[s.IdempotencyKey] = s.ID
	}
	if !s.Done() {
		x.Live = append(x.Live, s)
	}
}

// endSweep removes a sweep that has ended from the live ones.
func (x *sweepIndex) endSweep(s *Sweep) {
	if i := slices.Index(x.Live, s); i >= 0 {
		x.Live = slices.Delete(x.Live, i, i+1)
	}
}

// continueSweep adds a sweep that had ended to the live ones.
func (x *sweepIndex) continueSweep(s *Sweep) {
	i, _ := slices.BinarySearchFunc(x.Live, s.Order, func(o *Sweep, order int) int { return o.Order - order })
	x.Live = slices.Insert(x.Live, i, s)
}

// remove replaces a sweep by its record as a deleted one.
func (x *sweepIndex) remove(s *Sweep, record Deleted) {
	delete(x.Sweeps, s.ID)
	if x.keys[s.IdempotencyKey] == s.ID {
		delete(x.keys, s.IdempotencyKey)
	}
	if i := slices.Index(x.SweepIDs, s.ID); i >= 0 {
		x.SweepIDs = slices.Delete(x.SweepIDs, i, i+1)
	}
	x.deleted[s.ID] = record
}

// Sweep returns a sweep by ID. The error is a *DeletedError if it was deleted.
func (x *sweepIndex) Sweep(id string) (*Sweep, error) {
	if s, ok := x.Sweeps[id]; ok {
		return s, nil
	}
	if d, ok := x.deleted[id]; ok {
		return nil, &DeletedError{d}
	}
	return nil, notFound("sweep", id)
}

// ByKey returns the ID of the sweep that was submitted with an idempotency key, or "".
func (x *sweepIndex) ByKey(key string) string {
	if key == "" {
		return ""
	}
	return x.keys[key]
}

// NextID returns the ID of the next sweep of a name.
func (x *sweepIndex) NextID(name string) string { return sweepID(name, x.names[name]+1) }

// Deleted lists the sweeps that were deleted, by ID.
func (x *sweepIndex) Deleted() []Deleted { return sortedDeleted(x.deleted) }

// TenantBytes returns the sizes of a tenant's sweeps that were not deleted: of their specs, and of their checkpoints
// in the store.
func (x *sweepIndex) TenantBytes(tenant string) (specs, checkpoints int64) {
	for _, s := range x.Sweeps {
		if TenantOf(s.Spec) == tenant {
			specs, checkpoints = specs+s.SpecBytes, checkpoints+s.CheckpointBytes
		}
	}
	return specs, checkpoints
}

func (x *sweepIndex) snapshotDeleted(snap *outbidv1.StateSnapshot) {
	snap.NextOrder = int64(x.nextOrder)
	for _, d := range x.Deleted() {
		snap.Deleted = append(snap.Deleted, &outbidv1.DeletedSweep{
			Id: d.ID, Tenant: d.Tenant, Actor: d.Actor, Deleted: stamp(d.At), Blob: d.Blob,
		})
	}
}

func (x *sweepIndex) restoreDeleted(snap *outbidv1.StateSnapshot) {
	for _, d := range snap.GetDeleted() {
		x.deleted[d.GetId()] = Deleted{
			ID: d.GetId(), Tenant: d.GetTenant(), Blob: d.GetBlob(), Actor: d.GetActor(), At: from(d.GetDeleted()),
		}
	}
	x.nextOrder = max(x.nextOrder, int(snap.GetNextOrder()))
}
