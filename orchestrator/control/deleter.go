package control

import (
	"context"
	"log/slog"
	"sync"

	"github.com/cenkalti/backoff/v5"
)

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
