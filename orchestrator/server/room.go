package server

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/outbid-dev/outbid/orchestrator/bus"
)

const (
	// roomEvery is how often the free space is checked.
	roomEvery = 10 * time.Second
	// fullAt is the used part of a NATS server's storage above which new sweeps are rejected. The rest is for running
	// sweeps.
	fullAt = .95
)

// room records whether NATS has room for new sweeps. The control loop can read it without waiting.
type room struct{ why atomic.Pointer[string] }

// full returns why another sweep does not fit, or "" if it does or if that is unknown.
func (r *room) full() string {
	if why := r.why.Load(); why != nil {
		return *why
	}
	return ""
}

// update records the storage of the NATS servers.
func (r *room) update(all []bus.Storage) {
	text := ""
	for _, s := range all {
		if s.Limit > 0 && float64(s.Used) >= fullAt*float64(s.Limit) {
			text = fmt.Sprintf("NATS server %s stores %s of at most %s (max_file_store); running sweeps continue. An admin must delete data that "+
				"is not needed, or raise the limit", s.Server, humanize.IBytes(uint64(s.Used)), humanize.IBytes(uint64(s.Limit)))
		}
	}
	r.why.Store(&text)
}

// watch checks regularly until stop is called.
func (r *room) watch(current func() []bus.Storage) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		tick := time.NewTicker(roomEvery)
		defer tick.Stop()
		for {
			r.update(current())
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	})
	return func() { cancel(); done.Wait() }
}
