package control

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

const (
	// slowest and fastest limit how the ledger's time approaches this machine's clock: it slows down by at most 1/50
	// and speeds up by at most 1/200, so that no lease ends before its worker ends its forks.
	slowest = 50
	fastest = 200
	// skewTold is the smallest difference between this machine's clock and the ledger's time that is reported.
	skewTold = 2 * time.Second
)

// clock is the time of one leader, which all decisions use. It begins where the previous leader's ended, advances
// with this process's monotonic clock, and slowly approaches this machine's wall clock. So it never stops or jumps,
// whatever the clocks of successive leaders say. It is safe for concurrent use.
type clock struct {
	wall func() time.Time

	mu   sync.Mutex
	at   time.Time // without a monotonic reading, because a replay has none
	read time.Time // what wall returned then
	told time.Duration
}

// newClock returns a clock that begins at a time.
func newClock(wall func() time.Time, at time.Time) *clock {
	return &clock{wall: wall, at: at.Round(0), read: wall()}
}

// now returns the time, which never goes back.
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

// skew returns how far this machine's clock is ahead of the ledger's time. It is negative if it is behind.
func (c *clock) skew() time.Duration {
	now := c.now()
	return c.wall().Round(0).Sub(now)
}

// news returns the skew if it should be reported: it is new, or has grown or shrunk by half since the last report.
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

// passedSince returns how much time has passed since the last batch, which was appended at last. It asks up to three
// clocks: this machine's clock; that of NATS, which all leaders share; and the uptime of this machine, if this server
// led before and the machine has not restarted. The smallest answer counts, because a clock that is hours ahead must
// not end leases that have hours left. Negative answers come from clocks that were set back, and are ignored.
func passedSince(ctx context.Context, cfg Config, last, wall time.Time) (time.Duration, error) {
	said := []time.Duration{wall.Round(0).Sub(last)}
	if timed, ok := cfg.Ledger.(interface {
		SinceLast(ctx context.Context) (time.Duration, error)
	}); ok {
		store, err := timed.SinceLast(ctx)
		if err != nil {
			return 0, fmt.Errorf("asking how long ago the last batch was appended: %w", err)
		}
		said = append(said, store)
	}
	if cfg.Uptime != nil {
		up, ok, err := cfg.Uptime.Since(last)
		if err != nil {
			return 0, err
		}
		if ok {
			said = append(said, up)
		}
	}
	said = slices.DeleteFunc(said, func(d time.Duration) bool { return d < 0 })
	if len(said) == 0 {
		return 0, nil
	}
	return slices.Min(said), nil
}

// Uptime is a clock that cannot be set and continues while the server is down.
type Uptime interface {
	// Note records that the time is now at.
	Note(at time.Time) error
	// Since returns how long ago a time was, or false if the recorded notes do not tell.
	Since(at time.Time) (time.Duration, bool, error)
}

// noteEvery is how often the ledger's time is noted. That need not be often, because both clocks run at the same
// speed.
const noteEvery = 10 * time.Second

// timekeeper is a leader's clock. It compares the clock with others when it starts, and tells how far this machine's
// clock is from it.
type timekeeper struct {
	*clock
	wall   func() time.Time
	uptime Uptime
	logger *slog.Logger
	// noted is when the time was last noted; only the loop's goroutine uses it.
	noted time.Time
}

// start starts this leader's time, once the state as of last is restored.
func (k *timekeeper) start(ctx context.Context, cfg Config, last time.Time) error {
	wall := k.wall()
	if last.IsZero() {
		k.clock = newClock(k.wall, wall)
		return nil
	}
	passed, err := passedSince(ctx, cfg, last, wall)
	if err != nil {
		return err
	}
	k.clock = newClock(k.wall, last.Add(passed))
	k.tellSkew()
	return nil
}

// keep reports a skew, and notes the ledger's time for the next start on this machine.
func (k *timekeeper) keep() {
	k.tellSkew()
	now := k.now()
	if k.uptime == nil || now.Sub(k.noted) < noteEvery {
		return
	}
	k.noted = now
	if err := k.uptime.Note(now); err != nil {
		k.logger.Warn("could not note the uptime: a change of this machine's clock while the server is down would not be detected", "err", err)
	}
}

// tellSkew logs a difference between this machine's clock and the ledger's time.
func (k *timekeeper) tellSkew() {
	skew, ok := k.news()
	if !ok {
		return
	}
	k.logger.Warn("this machine's clock differs from the time in the ledger, which approaches it slowly; timers "+
		"are not affected; synchronise the clocks of the servers with NTP", "clock_ahead_by", skew.Round(time.Millisecond))
}

// check returns the line of outbid doctor about this machine's clock.
func (k *timekeeper) check() *outbidv1.Check {
	skew := k.skew().Round(time.Millisecond)
	c := &outbidv1.Check{Name: "clock", Ok: skew.Abs() < skewTold}
	word := "ahead of"
	if skew < 0 {
		word = "behind"
	}
	c.Detail = fmt.Sprintf("the server's clock is %s %s the time in the ledger", skew.Abs(), word)
	if !c.Ok {
		c.Detail += ", which approaches it slowly; timers are not affected"
		c.Fix = "synchronise the clocks of the servers with NTP"
	}
	return c
}
