package control

import (
	"google.golang.org/protobuf/proto"

	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Frozen is an immutable copy of a core with its tuners and policy, or of the changes in it.
type Frozen struct {
	snapshot *outbidv1.StateSnapshot
	// saved identifies the core's state.
	saved *state.Saved
}

// Freeze copies the core. That takes a fifth of the time of encoding it.
func (c *Core) Freeze() (Frozen, error) { return c.FreezeSince(nil) }

// FreezeSince copies the changes since an earlier state, or everything if that is nil. It takes time in proportion
// to the number of changed trials, and to the tuners of sweeps that have not ended.
func (c *Core) FreezeSince(old *state.Saved) (Frozen, error) {
	if c.Deciding() {
		return Frozen{}, errDeciding
	}
	snap, saved := state.SnapshotSince(c.engine.st, old)
	for i, r := range snap.GetSweeps() {
		if old != nil && snap.GetChanges().GetSweeps()[i].GetUnchanged() {
			continue
		}
		if err := c.tuning.Snapshot(r); err != nil {
			return Frozen{}, err
		}
	}
	if err := c.rounds.Snapshot(snap); err != nil {
		return Frozen{}, err
	}
	return Frozen{snap, saved}, nil
}

// Saved identifies the state.
func (f Frozen) Saved() *state.Saved { return f.saved }

// Encode returns the snapshot in the format that load reads. Equal states give equal bytes. It may be called from any
// goroutine.
func (f Frozen) Encode() ([]byte, error) {
	return proto.MarshalOptions{Deterministic: true}.Marshal(f.snapshot)
}

// Snapshot returns the encoded core.
func (c *Core) Snapshot() ([]byte, error) {
	frozen, err := c.Freeze()
	if err != nil {
		return nil, err
	}
	return frozen.Encode()
}

// countTrials counts the trials in memory, and those of sweeps that have not ended.
func (c *Core) countTrials() (all, live int) {
	for _, s := range c.engine.st.Sweeps {
		all += len(s.Trials)
	}
	for _, s := range c.engine.st.Live {
		live += len(s.Trials)
	}
	return all, live
}

// Loaded identifies the state of the snapshot from which the core was restored. It returns nil without one.
func (c *Core) Loaded() *state.Saved { return c.loaded }
