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

// Frozen is a core at one time, with its tuners and policy. It does not change while the core goes on.
type Frozen struct {
	seq      uint64
	snapshot *outbidv1.StateSnapshot
}

// Freeze returns the core as it is. That takes a fifth of the time that encoding it takes.
func (c *Core) Freeze() (Frozen, error) {
	if c.Deciding() {
		return Frozen{}, errDeciding
	}
	snap := c.st.Snapshot()
	for _, r := range snap.GetSweeps() {
		if err := c.snapshotTuner(r); err != nil {
			return Frozen{}, err
		}
	}
	data, err := c.policy.Snapshot()
	if err != nil {
		return Frozen{}, fmt.Errorf("snapshot of policy %s: %w", c.policy.Name(), err)
	}
	snap.Policy, snap.PolicyName = data, c.policy.Name()
	return Frozen{c.st.Seq, snap}, nil
}

// Encode returns the snapshot as load takes it: the same state gives the same bytes. It may be called from any goroutine.
func (f Frozen) Encode() ([]byte, error) {
	return proto.MarshalOptions{Deterministic: true}.Marshal(f.snapshot)
}

// Snapshot is the core, encoded.
func (c *Core) Snapshot() ([]byte, error) {
	frozen, err := c.Freeze()
	if err != nil {
		return nil, err
	}
	return frozen.Encode()
}

// maybeSnapshot saves a snapshot once enough events have come since the last one. Freezing the state costs time in
// proportion to the number of trials, so the more trials there are the more events are waited for. Encoding and saving it
// happen while the loop goes on.
func (l *Loop) maybeSnapshot() {
	if l.events < max(l.cfg.SnapshotEvery, 2*l.core.trials()) {
		return
	}
	if l.core.Deciding() {
		l.core.HoldRound() // then it is made before the next
		return
	}
	select {
	case l.saving <- struct{}{}:
	default:
		return // the one before is still being written
	}
	frozen, err := l.core.Freeze()
	if err != nil {
		<-l.saving
		l.cfg.Logger.Error("no snapshot could be made", "err", err)
		return
	}
	l.events = 0
	l.snapshot.Go(func() {
		defer func() { <-l.saving }()
		if err := l.saveSnapshot(frozen, snapshotTimeout); err != nil {
			l.cfg.Logger.Error("no snapshot could be saved", "err", err)
		}
	})
}

// How long the writing of a snapshot may take: one while the loop runs, and the last one, which its end waits for.
const (
	snapshotTimeout = 2 * time.Minute
	finalTimeout    = 10 * time.Second
)

// saveSnapshot saves a snapshot once the history before it is on disk: that part of the ledger will not be read again.
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
		l.cfg.Logger.Warn("the snapshot could not be saved; the next restart reads more of the ledger", "seq", frozen.seq, "err", err)
	}
	return nil
}

// finish has the round happen that the policy is still deciding, and then takes the last snapshot.
func (l *Loop) finish(ctx context.Context) error {
	if l.core.Deciding() {
		l.core.HoldRound()
		l.busy.Store(time.Now().UnixNano()) // nodes are renewed meanwhile; the step below ends that
		l.policy.Wait()
		if _, err := l.step(ctx, []Input{PolicyDone{}}); err != nil {
			return err
		}
	}
	return l.finalSnapshot()
}

// finalSnapshot makes the next start quick.
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

// trials counts those of sweeps that are in memory.
func (c *Core) trials() int {
	n := 0
	for _, s := range c.st.Sweeps {
		n += len(s.Trials)
	}
	return n
}

// deleter removes objects one after another, each until it succeeds or the loop ends. What is left then is found as
// an orphan at the next start.
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

func (d *deleter) take() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	keys := d.keys
	d.keys = nil
	return keys
}

// start begins to delete; the function it returns ends that and waits.
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
			for _, key := range d.take() {
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
		d.logger.Warn("a checkpoint that nothing needs could not be deleted", "key", key, "err", err)
	}
}
