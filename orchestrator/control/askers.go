package control

import (
	"context"
	"sync"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/remote"
)

// saveEvery is the number of questions that a remote tuner answers between two snapshots. The process that takes over
// from it is sent the later questions again.
const saveEvery = 256

// tunerClient sends questions to the remote tuner of one sweep, one after another, in its own goroutine, so that only
// its sweep waits for it. The answers come back as inputs.
type tunerClient struct {
	sweep string
	// ends is cancelled when answers are no longer needed.
	ends   context.Context //nolint:containedctx // the lifetime of the client
	cancel context.CancelFunc
	// given is the number of the newest question in the queue; only the loop uses it.
	given uint64

	mu    sync.Mutex
	queue []remote.Question
	more  chan struct{}
}

// give adds a sweep's open questions to the queue.
func (c *tunerClient) give(open []remote.Question) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, q := range open {
		if q.Number > c.given {
			c.queue, c.given = append(c.queue, q), q.Number
		}
	}
	select {
	case c.more <- struct{}{}:
	default:
	}
}

// next waits for questions and returns at most the given number. It returns several only if each is about one trial.
// It returns nil when the client ends or another tuner needs its place.
func (c *tunerClient) next(wanted <-chan struct{}, most int) []remote.Question {
	for c.ends.Err() == nil {
		if q := c.pop(most); len(q) > 0 {
			return q
		}
		select {
		case <-c.more:
		case <-wanted:
			return nil
		case <-c.ends.Done():
		}
	}
	return nil
}

func (c *tunerClient) pop(most int) []remote.Question {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for ; n < min(most, len(c.queue)); n++ {
		if !ofTrial(c.queue[n].Event) { // an Ask may take long, so send it alone
			n = max(n, 1)
			break
		}
	}
	taken := c.queue[:n:n]
	c.queue = c.queue[n:]
	return taken
}

// ofTrial reports whether an event is about a trial that reported or ended.
func ofTrial(event tuner.Event) bool {
	switch event.(type) {
	case tuner.Reported, tuner.Reached, tuner.Exited:
		return true
	default:
		return false
	}
}

// togetherAtMost and togetherWithin limit a call to a process that answers each question separately: the number of
// questions, and the expected duration.
const (
	togetherAtMost = 64
	togetherWithin = 10 * time.Millisecond
)

// together returns how many questions the next call may hold, from the number and the duration of the last call.
func together(asked int, took time.Duration) int {
	return int(min(togetherAtMost, max(1, togetherWithin*time.Duration(asked)/max(took, 1))))
}

// owns ends a process, and a call to it, when the client ends.
func (c *tunerClient) owns(o *opened) {
	if o != nil {
		context.AfterFunc(c.ends, o.end)
	}
}
