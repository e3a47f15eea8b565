package control

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
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

// maybeSnapshot saves a snapshot after enough events since the last one. Freezing takes time in proportion to the
// number of trials, so more trials require more events. Encoding and saving run concurrently with the loop.
func (l *Loop) maybeSnapshot() {
	if l.events < max(l.cfg.SnapshotEvery, 2*l.core.countTrials()) {
		return
	}
	if l.core.Deciding() {
		l.core.HoldRound() // the snapshot is made before the next round
		return
	}
	select {
	case l.saving <- struct{}{}:
	default:
		return // the previous snapshot is still being written
	}
	frozen, err := l.core.Freeze()
	if err != nil {
		<-l.saving
		l.cfg.Logger.Error("could not make a snapshot", "err", err)
		return
	}
	l.events = 0
	l.snapshot.Go(func() {
		defer func() { <-l.saving }()
		if err := l.saveSnapshot(frozen, snapshotTimeout); err != nil {
			l.cfg.Logger.Error("could not save a snapshot", "err", err)
		}
	})
}

// snapshotTimeout limits the saving of a snapshot while the loop runs, and finalTimeout that of the last one, which
// the loop's end waits for.
const (
	snapshotTimeout = 2 * time.Minute
	finalTimeout    = 10 * time.Second
)

// saveSnapshot saves a snapshot after flushing the history, because a restart will not read that part of the ledger
// again.
func (l *Loop) saveSnapshot(frozen Frozen, timeout time.Duration) error {
	data, err := frozen.Encode()
	if err != nil {
		return err
	}
	if err := l.cfg.History.Flush(); err != nil {
		return fmt.Errorf("flushing the history: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	if err := l.cfg.Ledger.SaveSnapshot(ctx, frozen.seq, data); err != nil {
		l.cfg.Logger.Warn("could not save the snapshot; the next restart reads more of the ledger", "seq", frozen.seq, "err", err)
	}
	return nil
}

// finish applies the round that the policy is still deciding, and then takes the last snapshot.
func (l *Loop) finish(ctx context.Context) error {
	if l.core.Deciding() {
		l.core.HoldRound()
		l.busy.Store(time.Now().UnixNano()) // renew leases meanwhile; the step below ends that
		l.policy.Wait()
		if _, err := l.step(ctx, []Input{PolicyDone{}}); err != nil {
			return err
		}
	}
	return l.finalSnapshot()
}

// finalSnapshot saves a snapshot so that the next start is fast.
func (l *Loop) finalSnapshot() error {
	if l.events == 0 {
		return l.cfg.History.Flush()
	}
	frozen, err := l.core.Freeze()
	if err != nil {
		return err
	}
	return l.saveSnapshot(frozen, finalTimeout)
}

// countTrials counts the trials in memory.
func (c *Core) countTrials() int {
	n := 0
	for _, s := range c.engine.st.Sweeps {
		n += len(s.Trials)
	}
	return n
}

// deleter deletes objects one after another, and retries each until it succeeds or the loop ends. Objects that remain
// are found as orphans at the next start.
type deleter struct {
	delete func(context.Context, string) error
	logger *slog.Logger

	mu    sync.Mutex
	keys  []string
	ready chan struct{}
}

func newDeleter(del func(context.Context, string) error, logger *slog.Logger) *deleter {
	return &deleter{delete: del, logger: logger, ready: make(chan struct{}, 1)}
}

func (d *deleter) add(keys []string) {
	if len(keys) == 0 {
		return
	}
	d.mu.Lock()
	d.keys = append(d.keys, keys...)
	d.mu.Unlock()
	select {
	case d.ready <- struct{}{}:
	default:
	}
}

func (d *deleter) drain() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	keys := d.keys
	d.keys = nil
	return keys
}

// start begins to delete. The returned function ends that and waits.
func (d *deleter) start() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-d.ready:
			}
			for _, key := range d.drain() {
				d.remove(ctx, key)
			}
		}
	})
	return func() { cancel(); wg.Wait() }
}

func (d *deleter) remove(ctx context.Context, key string) {
	_, err := backoff.Retry(ctx, func() (struct{}, error) { return struct{}{}, d.delete(ctx, key) },
		backoff.WithBackOff(backoff.NewExponentialBackOff()), backoff.WithMaxElapsedTime(0))
	if err != nil && ctx.Err() == nil {
		d.logger.Warn("could not delete a checkpoint that is no longer needed", "key", key, "err", err)
	}
}
