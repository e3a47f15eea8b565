package control

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/ledger"
)

const (
	// slowest and fastest say by how much of the time that passes the ledger's time approaches this machine's clock: it
	// slows down by a fiftieth and hurries by a two-hundredth at most, so that no lease ends before its worker ends its forks.
	slowest = 50
	fastest = 200
	// skewTold is how far this machine's clock and the ledger's time must be apart for somebody to be told.
	skewTold = 2 * time.Second
)

// clock is the time of one leader, by which everything is decided. It begins where the leader before left off, passes as
// this process's monotonic clock does, and approaches this machine's wall clock slowly. So it never stops and never jumps,
// whatever the clocks of the machines that lead one after the other say. It may be used by several goroutines.
type clock struct {
	wall func() time.Time

	mu   sync.Mutex
	at   time.Time // without a monotonic reading: a replay has none
	read time.Time // what wall said then
	told time.Duration
}

// newClock returns a clock that begins at a time.
func newClock(wall func() time.Time, at time.Time) *clock {
	return &clock{wall: wall, at: at.Round(0), read: wall()}
}

// now never goes back.
func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	wall := c.wall()
	passed := max(0, wall.Sub(c.read)) // by the monotonic clock, if wall has one
	ahead := wall.Round(0).Sub(c.at.Add(passed))
	c.at = c.at.Add(passed + min(max(ahead, -passed/slowest), passed/fastest))
	c.read = wall
	return c.at
}

// skew is how far this machine's clock is ahead of the ledger's time; below zero if it is behind.
func (c *clock) skew() time.Duration {
	now := c.now()
	return c.wall().Round(0).Sub(now)
}

// news is the skew if it is worth telling and was not told: it has come, or has grown or shrunk by a half.
func (c *clock) news() (time.Duration, bool) {
	skew := c.skew()
	c.mu.Lock()
	defer c.mu.Unlock()
	if skew.Abs() < skewTold || (skew-c.told).Abs() < max(skewTold, c.told.Abs()/2) {
		return 0, false
	}
	c.told = skew
	return skew, true
}

// passedSince is how much time passed since the last batch, which was appended at a time. Where NATS keeps the ledger
// its clock says so, which is the same for all who lead; this machine's own clock has a say too: what only one of them
// saw passing does not count, because a clock that is hours ahead must not end what has hours left.
func passedSince(ctx context.Context, l ledger.Ledger, last, wall time.Time) (time.Duration, error) {
	own := wall.Round(0).Sub(last)
	timed, ok := l.(interface {
		SinceLast(ctx context.Context) (time.Duration, error)
	})
	if !ok {
		return max(0, own), nil
	}
	store, err := timed.SinceLast(ctx)
	if err != nil {
		return 0, fmt.Errorf("asking how long ago the last batch was appended: %w", err)
	}
	if own < 0 { // this clock is behind, or that of the leader before was ahead
		own = store
	}
	return max(0, min(own, store)), nil
}

// startClock begins this leader's time, once the state is restored.
func (l *Loop) startClock(ctx context.Context) error {
	wall, last := l.cfg.Now(), l.core.st.Time
	if last.IsZero() {
		l.clock = newClock(l.cfg.Now, wall)
		return nil
	}
	passed, err := passedSince(ctx, l.cfg.Ledger, last, wall)
	if err != nil {
		return err
	}
	l.clock = newClock(l.cfg.Now, last.Add(passed))
	l.tellSkew()
	return nil
}

// tellSkew says in the log that this machine's clock and the ledger's time are apart.
func (l *Loop) tellSkew() {
	skew, ok := l.clock.news()
	if !ok {
		return
	}
	l.cfg.Logger.Warn("this machine's clock differs from the time in the ledger, which goes on and approaches it slowly: timers "+
		"are not disturbed; set the clocks of the machines that lead, with NTP", "clock_ahead_by", skew.Round(time.Millisecond))
}

// Skew is how far this machine's clock is ahead of the time by which everything is decided.
func (l *Loop) Skew() time.Duration { return l.clock.skew() }
