package control

import (
	"context"
	"fmt"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/ledger"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Restore returns the core from a ledger's newest snapshot and the batches after it. seen is called with every batch
// that was applied; it may be nil.
func Restore(
	ctx context.Context, set Settings, p policy.Policy, l ledger.Ledger, seen func(b *outbidv1.Batch, events []*outbidv1.Event) error,
) (*Core, error) {
	_, data, err := l.LoadSnapshot(ctx)
	if err != nil {
		return nil, fmt.Errorf("loading the newest snapshot: %w", err)
	}
	c, err := load(set, p, data)
	if err != nil {
		return nil, err
	}
	err = l.Read(ctx, c.engine.st.Seq+1, func(b *outbidv1.Batch) error {
		events, err := ledger.Decode(b)
		if err != nil {
			return err
		}
		if err := c.Replay(b.GetTime().AsTime(), events); err != nil {
			return fmt.Errorf("ledger batch %d: %w", b.GetSeq(), err)
		}
		c.Appended(b)
		if seen != nil {
			return seen(b, events)
		}
		return nil
	})
	if err == nil {
		err = c.rounds.InstallConfigured()
	}
	if err != nil {
		return nil, err
	}
	l.Resume(c.engine.st.Seq, c.engine.st.Hash)
	return c, nil
}

// load returns the core of a snapshot, or a new one if data is nil.
func load(set Settings, p policy.Policy, data []byte) (*Core, error) {
	if data == nil {
		return NewCore(set, p, state.New()), nil
	}
	snap, trials, err := decodeSnapshot(data)
	if err != nil {
		return nil, err
	}
	st, err := state.RestoreApart(snap, trials)
	if err != nil {
		return nil, err
	}
	c := NewCore(set, p, st)
	for _, r := range snap.GetSweeps() {
		if err := c.tuning.Load(r); err != nil {
			return nil, err
		}
	}
	return c, c.rounds.Load(snap)
}

// Appended records that the core's newest events are in the ledger as a batch.
func (c *Core) Appended(b *outbidv1.Batch) {
	c.engine.st.Seq, c.engine.st.Hash = b.GetSeq(), b.GetHash()
}

// Replay applies events of a batch that was decided before. Tuners and the policy get the same questions as they did
// then; their answers are ignored, because the events contain them.
func (c *Core) Replay(at time.Time, events []*outbidv1.Event) error {
	e := c.engine
	e.replaying = true
	defer func() { e.replaying, e.following = false, nil }()
	for i, event := range events {
		e.following = events[i+1:]
		if _, _, err := e.fold(at, event); err != nil {
			return err
		}
	}
	return nil
}
