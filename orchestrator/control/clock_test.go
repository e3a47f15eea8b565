package control

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/outbid-dev/outbid/orchestrator/ledger"
)

var noon = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

// storeClock is a ledger in a NATS server that returns how long ago the last batch was stored.
type storeClock struct {
	ledger.Ledger
	since time.Duration
}

func (s storeClock) SinceLast(context.Context) (time.Duration, error) { return s.since, nil }

// upFor is an uptime since which any time has passed; 0 means that it is unknown.
type upFor time.Duration

func (upFor) Note(time.Time) error { return nil }

func (u upFor) Since(time.Time) (time.Duration, bool, error) { return time.Duration(u), u != 0, nil }

func TestTimeBetweenLeaders(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		wall  time.Duration // the new leader's clock, from the last batch's time
		store time.Duration // by the clock of NATS
		up    time.Duration // by the machine's uptime; 0 if unknown
		alone bool          // only the new leader's clock exists
		want  time.Duration
	}{
		"clocks agree":                                  {wall: 5 * time.Second, store: 5 * time.Second, want: 5 * time.Second},
		"nobody led for three hours":                    {wall: 3 * time.Hour, store: 3 * time.Hour, want: 3 * time.Hour},
		"the new leader is three hours ahead":           {wall: 3 * time.Hour, store: 5 * time.Second, want: 5 * time.Second},
		"the new leader is five minutes behind":         {wall: -295 * time.Second, store: 5 * time.Second, want: 5 * time.Second},
		"the leader before was an hour ahead":           {wall: -time.Hour, store: 4 * time.Second, want: 4 * time.Second},
		"NATS was moved to a machine far ahead":         {wall: 5 * time.Second, store: 3 * time.Hour, want: 5 * time.Second},
		"NATS was moved to a machine far behind":        {wall: 5 * time.Second, store: -time.Hour, want: 5 * time.Second},
		"all on a machine whose clock was set ahead":    {wall: time.Hour, store: time.Hour, up: 4 * time.Second, want: 4 * time.Second},
		"all on a machine whose clock was set back":     {wall: -time.Hour, store: -time.Hour, up: 4 * time.Second, want: 4 * time.Second},
		"all on a machine that started anew":            {wall: time.Hour, store: time.Hour, want: time.Hour},
		"another led long, with a clock that is behind": {wall: time.Hour, store: 5 * time.Second, up: time.Hour, want: 5 * time.Second},
		"another led long, with a clock that is ahead":  {wall: -time.Hour, store: 5 * time.Second, up: -time.Hour, want: 5 * time.Second},
		"one machine, three hours down":                 {wall: 3 * time.Hour, alone: true, want: 3 * time.Hour},
		"one machine, its clock set back":               {wall: -time.Hour, alone: true, want: 0},
	} {
		var l ledger.Ledger = ledger.NewMemory()
		if !tc.alone {
			l = storeClock{l, tc.store}
		}
		got, err := passedSince(t.Context(), Config{Ledger: l, Uptime: upFor(tc.up)}, noon, noon.Add(tc.wall))
		if err != nil || got != tc.want {
			t.Errorf("%s: %s passed, want %s: %v", name, got, tc.want, err)
		}
	}
}

// drifting is a machine whose wall clock differs from real time.
type drifting struct {
	real   time.Time
	offset time.Duration
}

// now has no monotonic reading that a test could set. So the clock gets real time, and the skew is in its start.
func (d *drifting) now() time.Time { return d.real.Add(d.offset) }

func TestTheLedgersTimeAdvancesSteadily(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		// The ledger's time and the machine's clock are hours apart when the server begins to lead.
		apart := time.Duration(rapid.Int64Range(-int64(5*time.Hour), int64(5*time.Hour)).Draw(t, "apart"))
		d := &drifting{real: noon, offset: apart}
		c := newClock(d.now, noon)
		last := noon
		for range rapid.IntRange(1, 50).Draw(t, "steps") {
			passed := time.Duration(rapid.Int64Range(0, int64(time.Minute)).Draw(t, "passed"))
			d.real = d.real.Add(passed)
			now := c.now()
			if took := now.Sub(last); took < passed-passed/slowest-1 || took > passed+passed/fastest+1 {
				t.Fatalf("%s of the ledger's time passed in %s", took, passed)
			}
			last = now
		}
		before := d.now().Sub(last).Abs()
		d.real = d.real.Add(1000 * time.Hour)
		if after := d.now().Sub(c.now()).Abs(); after > 0 && after > before {
			t.Fatalf("it is %s off after 1,000 hours, it was %s off", after, before)
		}
	})
}

func TestAClockThatIsSetBackStopsNothing(t *testing.T) {
	t.Parallel()
	wall := time.Now() // with a monotonic reading, which continues
	c := newClock(func() time.Time { return wall }, wall)
	first := c.now()
	wall = wall.Add(time.Minute)
	if passed := c.now().Sub(first); passed != time.Minute {
		t.Errorf("%s passed in a minute", passed)
	}
	wall = wall.Round(0).Add(-time.Hour) // and one without, for lack of a clock that can be set
	if passed := c.now().Sub(first); passed < time.Minute {
		t.Errorf("time went back by %s", time.Minute-passed)
	}
}

func TestASkewIsLoggedOnce(t *testing.T) {
	t.Parallel()
	var said bytes.Buffer
	d := &drifting{real: noon, offset: -5 * time.Minute}
	k := &timekeeper{clock: newClock(d.now, noon), wall: d.now, logger: slog.New(slog.NewTextHandler(&said, nil))}
	for range 100 {
		d.real = d.real.Add(250 * time.Millisecond)
		k.tellSkew()
	}
	if n := strings.Count(said.String(), "clock_ahead_by=-4m59"); n != 1 || strings.Count(said.String(), "\n") != 1 {
		t.Errorf("told %d times:\n%s", n, said.String())
	}
}
