package control

import (
	"context"
	"errors"
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
	stored, err := loadLayers(ctx, l)
	if err != nil {
		return nil, err
	}
	c, err := load(set, p, stored)
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

// stored is the newest snapshot in a ledger.
type stored struct {
	layers *layers
	// whole is the size of the snapshot of the whole state, and changes that of the changes since then.
	whole, changes int
}

// loadLayers reads the newest snapshot with the changes since then. It returns nil without a snapshot.
func loadLayers(ctx context.Context, l ledger.Ledger) (*stored, error) {
	seq, data, err := l.LoadSnapshot(ctx)
	if err != nil {
		return nil, fmt.Errorf("loading the newest snapshot: %w", err)
	}
	if data == nil {
		return nil, nil //nolint:nilnil // a ledger begins without
	}
	s := &stored{whole: len(data)}
	if s.layers, err = layersOf(data); err != nil {
		return nil, err
	}
	if s.layers.head.GetChanges() != nil {
		return nil, fmt.Errorf("the snapshot of batch %d has only changes", seq)
	}
	all, err := l.LoadChanges(ctx, seq)
	if err != nil {
		return nil, fmt.Errorf("loading the changes since the newest snapshot: %w", err)
	}
	for _, data := range all {
		next, err := layersOf(data)
		if err == nil {
			err = s.layers.apply(next)
		}
		if errors.Is(err, errNotNext) {
			return s, nil // the ledger had lost its end, and these are of the lost batches
		}
		if err != nil {
			return nil, err
		}
		s.changes += len(data)
	}
	return s, nil
}

// load returns the core of a snapshot, or a new one if s is nil.
func load(set Settings, p policy.Policy, s *stored) (*Core, error) {
	if s == nil {
		return NewCore(set, p, state.New()), nil
	}
	snap, trials, err := s.layers.decode()
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
	if snap.GetFormat() == state.Format { // otherwise everything is written again, so that no record has an old format
		c.loaded, c.loadedWhole, c.loadedChanges = state.SavedOf(st), s.whole, s.changes
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
