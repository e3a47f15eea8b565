package control

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
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
	// noted is when the time was last noted; of the loop's goroutine alone.
	noted time.Time
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

// passedSince is how much time passed since the last batch, which was appended at a time. Up to three clocks say so: this
// machine's own, that of NATS, which is the same for all who lead, and the one that counts from this machine's start, if
// this orchestrator led before and the machine has run on. Only what all of them saw passing counts, because a clock that
// is hours ahead must not end what has hours left. One that says less than nothing was set back, and says nothing.
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

// Uptime is a clock that nobody can set and that goes on while the server is down.
type Uptime interface {
	// Note says that it is a moment now.
	Note(at time.Time) error
	// Since is how long ago a moment was; false if what was noted does not tell.
	Since(at time.Time) (time.Duration, bool, error)
}

// noteEvery is how often the ledger's time is noted. It need not be often: both clocks run alike.
const noteEvery = 10 * time.Second

// keepTime tells of a skew, and notes the ledger's time for the next start on this machine.
func (l *Loop) keepTime() {
	l.tellSkew()
	now := l.clock.now()
	if l.cfg.Uptime == nil || now.Sub(l.clock.noted) < noteEvery {
		return
	}
	l.clock.noted = now
	if err := l.cfg.Uptime.Note(now); err != nil {
		l.cfg.Logger.Warn("if somebody sets this machine's clock while the server is down, the next start cannot tell", "err", err)
	}
}

// startClock begins this leader's time, once the state is restored.
func (l *Loop) startClock(ctx context.Context) error {
	wall, last := l.cfg.Now(), l.core.st.Time
	if last.IsZero() {
		l.clock = newClock(l.cfg.Now, wall)
		return nil
	}
	passed, err := passedSince(ctx, l.cfg, last, wall)
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

// checkClock is the doctor's line about this machine's clock.
func (l *Loop) checkClock() *outbidv1.Check {
	skew := l.clock.skew().Round(time.Millisecond)
	c := &outbidv1.Check{Name: "clock", Ok: skew.Abs() < skewTold}
	word := "ahead of"
	if skew < 0 {
		word = "behind"
	}
	c.Detail = fmt.Sprintf("the server's is %s %s the time in the ledger", skew.Abs(), word)
	if !c.Ok {
		c.Detail += ", which approaches it slowly: timers are not disturbed"
		c.Fix = "set the clocks of the machines that lead, with NTP"
	}
	return c
}
