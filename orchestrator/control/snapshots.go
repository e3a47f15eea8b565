package control

import (
	"google.golang.org/protobuf/proto"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Frozen is an immutable copy of a core with its tuners and policy.
type Frozen struct {
	seq      uint64
	snapshot *outbidv1.StateSnapshot
}

// Freeze copies the core. That takes a fifth of the time of encoding it.
func (c *Core) Freeze() (Frozen, error) {
	if c.Deciding() {
		return Frozen{}, errDeciding
	}
	snap := c.engine.st.Snapshot()
	for _, r := range snap.GetSweeps() {
		if err := c.tuning.Snapshot(r); err != nil {
			return Frozen{}, err
		}
	}
	if err := c.rounds.Snapshot(snap); err != nil {
		return Frozen{}, err
	}
	return Frozen{c.engine.st.Seq, snap}, nil
}

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

// countTrials counts the trials in memory.
func (c *Core) countTrials() int {
	n := 0
	for _, s := range c.engine.st.Sweeps {
		n += len(s.Trials)
	}
	return n
}
