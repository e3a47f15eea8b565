package worker

import (
	"sync"
	"time"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

const (
	// stopGrace is how long training code may take to end after the order to stop. Then its process is killed.
	stopGrace = 15 * time.Second
	// pauseGrace is the same for a pause, which has to finish a step and write a checkpoint.
	pauseGrace = 2 * time.Minute
)

// order is what a fork should do.
type order struct {
	verdict outbidv1.Verdict
	until   int64
	reason  string
}

// same reports whether training code already has the order.
func (o order) same(other order) bool { return o.verdict == other.verdict && o.until == other.until }

// isEnding reports whether the fork has to pause or to stop.
func (o order) isEnding() bool {
	return o.verdict == outbidv1.Verdict_VERDICT_PAUSE || o.verdict == outbidv1.Verdict_VERDICT_STOP
}

// forkOrders holds the newest order of a fork.
type forkOrders struct {
	// wake receives a value when the order has changed, and changed is called when the version has.
	wake    chan struct{}
	changed func()

	mu      sync.Mutex
	version uint64
	newest  order
	// first is the order that the training code starts with.
	first order
	// drained is set once the worker pauses the fork whatever its orders say.
	drained bool
}

// direct records what the fork should do from now on. version is 0 if the order does not come from an assignment.
func (o *forkOrders) direct(verdict outbidv1.Verdict, until int64, reason string, version uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if version != 0 {
		if version <= o.version {
			return
		}
		o.version = version
		o.changed()
	}
	if o.drained && verdict == outbidv1.Verdict_VERDICT_TRAIN {
		return
	}
	o.newest = order{verdict, until, reason}
	poke(o.wake)
}

// drain pauses the fork for a reason, whatever the orders say, unless it is stopped already.
func (o *forkOrders) drain(why string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.drained = true
	if o.newest.verdict != outbidv1.Verdict_VERDICT_STOP {
		o.newest.verdict, o.newest.reason = outbidv1.Verdict_VERDICT_PAUSE, why
	}
	poke(o.wake)
}

// ordered returns the newest order.
func (o *forkOrders) ordered() order {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.newest
}

// taken returns the version of the newest assignment that the fork has.
func (o *forkOrders) taken() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.version
}

// target returns the step until which the training code is to run, and records the order that it starts with.
func (o *forkOrders) target() int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.first = o.newest
	o.first.verdict = outbidv1.Verdict_VERDICT_TRAIN
	return o.first.until
}

// startedWith returns the order that the training code started with.
func (o *forkOrders) startedWith() order {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.first
}

// pauseGrace returns how long the training code may take to save and end. When the worker stops, that is the time that
// its operator gives, if it is longer.
func (o *forkOrders) pauseGrace(operator time.Duration) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.drained {
		return max(pauseGrace, operator)
	}
	return pauseGrace
}
