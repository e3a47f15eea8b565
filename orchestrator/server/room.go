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
	// roomEvery is how often it is looked whether there is room for further sweeps.
	roomEvery = 10 * time.Second
	// fullAt is the part of a NATS server's storage from which no further sweeps are taken. What is left is for those that run.
	fullAt = .95
)

// room knows whether NATS has room for further sweeps. It is asked by the control loop, which waits for nobody.
type room struct{ why atomic.Pointer[string] }

// full says why there is no room for another sweep; "" if there is, or if nothing is known.
func (r *room) full() string {
	if why := r.why.Load(); why != nil {
		return *why
	}
	return ""
}

// look takes in what the NATS servers store.
func (r *room) look(all []bus.Storage) {
	text := ""
	for _, s := range all {
		if s.Limit > 0 && float64(s.Used) >= fullAt*float64(s.Limit) {
			text = fmt.Sprintf("NATS server %s stores %s of the %s that it may (max_file_store); sweeps that run continue. An admin deletes what "+
				"is not needed, or allows more", s.Server, humanize.IBytes(uint64(s.Used)), humanize.IBytes(uint64(s.Limit)))
		}
	}
	r.why.Store(&text)
}

// watch looks now and then until stop is called.
func (r *room) watch(current func() []bus.Storage) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		tick := time.NewTicker(roomEvery)
		defer tick.Stop()
		for {
			r.look(current())
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	})
	return func() { cancel(); done.Wait() }
}
