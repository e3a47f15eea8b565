package worker

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"pgregory.net/rapid"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// simDisk is a disk that writes back speed bytes a second from the kernel's cache, with its own clock.
type simDisk struct {
	now    time.Time
	speed  float64
	busy   time.Duration
	trials map[*fork]*simWriter
}

// simWriter is training code that writes rate bytes a second while it runs. If waits is set, it waits while the disk
// is busy, as code that reads or syncs does.
type simWriter struct {
	rate, unwritten, written float64
	waits, held, unholdable  bool
	disk                     *simDisk
	holds                    int
}

func (w *simWriter) CanHold() bool             { return !w.unholdable }
func (w *simWriter) Unwritten() (int64, error) { return int64(w.unwritten), nil }
func (w *simWriter) WaitsForDisk() bool        { return w.waits && !w.held && w.disk.queue() > 1<<20 }

func (w *simWriter) Hold(held bool) error {
	w.held = held
	w.holds++
	return nil
}

func (d *simDisk) queue() (bytes float64) {
	for _, w := range d.trials {
		bytes += w.unwritten
	}
	return bytes
}

// pass lets time pass.
func (d *simDisk) pass(dt time.Duration) {
	d.now = d.now.Add(dt)
	for _, w := range d.trials {
		if !w.held {
			w.unwritten += w.rate * dt.Seconds()
			w.written += w.rate * dt.Seconds()
		}
	}
	queue := d.queue()
	if queue == 0 {
		return
	}
	done := min(queue, d.speed*dt.Seconds())
	d.busy += time.Duration(float64(dt) * done / (d.speed * dt.Seconds()))
	for _, w := range d.trials {
		w.unwritten -= done * w.unwritten / queue
	}
}

// paced returns a pace over a disk of 250 MB/s, and its trials.
func paced(t testing.TB, writers ...*simWriter) (*diskPace, *simDisk, []*fork) {
	t.Helper()
	cfg := &Config{Node: "n1", Logger: slog.New(slog.DiscardHandler)}
	disk := &simDisk{now: time.Unix(0, 0), speed: 250e6, trials: map[*fork]*simWriter{}}
	var forks []*fork
	for i, w := range writers {
		f := assembleFork(cfg, newOutbox(), &outbidv1.ForkRef{Sweep: "s-1", LeaseId: uint64(i + 1)}, nil, secrets{}, func() {})
		w.disk, disk.trials[f] = disk, w
		forks = append(forks, f)
	}
	d := newDiskPace(cfg, func() []*fork {
		var running []*fork
		for _, f := range forks {
			if disk.trials[f] != nil {
				running = append(running, f)
			}
		}
		return running
	})
	d.clock, d.busy, d.flush = func() time.Time { return disk.now }, func() (time.Duration, error) { return disk.busy, nil }, func() error { return nil }
	d.inside = func(f *fork) writes {
		if w := disk.trials[f]; w != nil {
			return w
		}
		return &simWriter{disk: disk}
	}
	return d, disk, forks
}

// live runs a pace for a while, and returns the share of the time that the other trial waited.
func live(d *diskPace, disk *simDisk, other *simWriter, during time.Duration) (waited float64) {
	looks, waits := 0, 0
	for end := disk.now.Add(during); disk.now.Before(end); looks++ {
		disk.pass(paceTick)
		d.step(disk.now)
		if other.WaitsForDisk() {
			waits++
		}
	}
	return float64(waits) / float64(looks)
}

// A trial that writes more than the disk takes is throttled while another trial waits for the disk, and only then.
func TestAWriterGivesWay(t *testing.T) {
	t.Parallel()
	greedy, healthy := &simWriter{rate: 2e9}, &simWriter{waits: true}
	d, disk, forks := paced(t, greedy, healthy)
	live(d, disk, healthy, 20*time.Second) // the first backlog is written
	if waited := live(d, disk, healthy, time.Minute); waited > 0.2 {
		t.Errorf("the other waits %.0f %% of the time", 100*waited)
	}
	if healthy.holds > 0 || forks[1].activity.heldUp.Load() {
		t.Error("the other is held")
	}
	if !forks[0].activity.heldUp.Load() {
		t.Error("the writer is throttled, but its silence would count as a hang")
	}
	if greedy.written < 60*8e6 {
		t.Errorf("the writer wrote %.0f MB in a minute", greedy.written/1e6)
	}
	// Once no trial waits any more it runs at full speed.
	disk.trials[forks[1]] = &simWriter{disk: disk}
	live(d, disk, healthy, 2*time.Minute)
	before := greedy.written
	live(d, disk, healthy, time.Second)
	if mb := (greedy.written - before) / 1e6; mb < 1900 || greedy.held || forks[0].activity.heldUp.Load() {
		t.Errorf("it writes %.0f MB/s when no trial waits", mb)
	}
}

// A writer is held before it has filled the cache with seconds of work for the disk.
func TestAWriterIsHeldAtOnce(t *testing.T) {
	t.Parallel()
	greedy, healthy := &simWriter{rate: 2e9}, &simWriter{waits: true}
	d, disk, _ := paced(t, greedy, healthy)
	for !greedy.held && disk.now.Before(time.Unix(10, 0)) {
		live(d, disk, healthy, paceTick)
	}
	if disk.queue() > 0.8*disk.speed {
		t.Errorf("it is held once the disk has work for %.1f s", disk.queue()/disk.speed)
	}
}

// A trial that saves once while another waits for the disk runs at full speed as soon as it has saved.
func TestWhoSavesOnceIsHeldForAMoment(t *testing.T) {
	t.Parallel()
	saves, healthy := &simWriter{rate: 2e9}, &simWriter{waits: true}
	d, disk, forks := paced(t, saves, healthy)
	live(d, disk, healthy, 2*paceTick) // 40 MB
	saves.rate = 0
	live(d, disk, healthy, 2*quietWindows*paceWindow)
	if saves.held || forks[0].activity.heldUp.Load() {
		t.Error("it is throttled after it has saved")
	}
}

// A trial that has to end is not held while it saves, and is released if it was.
func TestAWriterThatIsToEndRuns(t *testing.T) {
	t.Parallel()
	greedy, healthy := &simWriter{rate: 2e9}, &simWriter{waits: true}
	d, disk, forks := paced(t, greedy, healthy)
	live(d, disk, healthy, 10*time.Second)
	if !forks[0].activity.heldUp.Load() {
		t.Fatal("it is not throttled, so there is nothing to test")
	}
	forks[0].orders.direct(outbidv1.Verdict_VERDICT_PAUSE, 0, "others wait", 0)
	live(d, disk, healthy, 2*paceWindow)
	before, holds := greedy.written, greedy.holds
	live(d, disk, healthy, time.Second)
	if mb := (greedy.written - before) / 1e6; mb < 1900 || greedy.held || greedy.holds > holds || forks[0].activity.heldUp.Load() {
		t.Errorf("it writes only %.0f MB/s although it has to end", mb)
	}
}

// A trial is not throttled if it has the node to itself, if others do not wait, if all write alike, if others wait
// while the disk is idle, or if the disk's activity is unknown.
func TestAWriterIsLeftAlone(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]struct {
		writers []*simWriter
		change  func(*diskPace)
	}{
		"alone":              {writers: []*simWriter{{rate: 2e9}}},
		"others do not wait": {writers: []*simWriter{{rate: 2e9}, {}}},
		"all write":          {writers: []*simWriter{{rate: 2e9, waits: true}, {rate: 2e9, waits: true}}},
		"cannot be held":     {writers: []*simWriter{{rate: 2e9, unholdable: true}, {waits: true}}},
		"the disk does nothing": {writers: []*simWriter{{rate: 2e9}, {waits: true}}, change: func(d *diskPace) {
			d.busy = func() (time.Duration, error) { return 0, nil }
		}},
		"unknown activity": {writers: []*simWriter{{rate: 2e9}, {waits: true}}, change: func(d *diskPace) {
			d.busy = func() (time.Duration, error) { return 0, errors.New("no such disk") }
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, disk, _ := paced(t, of.writers...)
			if of.change != nil {
				of.change(d)
			}
			live(d, disk, of.writers[0], 10*time.Second)
			for i, w := range of.writers {
				if w.holds > 0 {
					t.Errorf("trial %d is held", i)
				}
			}
		})
	}
}

// Whatever starts, ends, writes and waits: when trials or the worker end, nothing is left held.
func TestNothingIsLeftHeld(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		rates := rapid.SliceOfN(rapid.SampledFrom([]float64{0, 1e6, 1e8, 2e9}), 1, 5).Draw(t, "rates")
		var writers []*simWriter
		for _, rate := range rates {
			writers = append(writers, &simWriter{rate: rate, waits: rapid.Bool().Draw(t, "waits")})
		}
		d, disk, forks := paced(&testing.T{}, writers...)
		for range rapid.IntRange(1, 20).Draw(t, "changes") {
			live(d, disk, writers[0], time.Duration(rapid.IntRange(1, 3000).Draw(t, "ms"))*time.Millisecond)
			i := rapid.IntRange(0, len(forks)-1).Draw(t, "trial")
			switch rapid.IntRange(0, 2).Draw(t, "what") {
			case 0:
				writers[i].rate = rapid.SampledFrom([]float64{0, 1e6, 2e9}).Draw(t, "rate")
			case 1:
				writers[i].waits = !writers[i].waits
			case 2: // its process continues with another trial
				delete(disk.trials, forks[i])
				d.inside = insideOf(disk, forks, writers)
				disk.pass(paceWindow)
				d.step(disk.now)
				if writers[i].held {
					t.Fatalf("trial %d has ended, and its process is held", i)
				}
			}
		}
		d.releaseAll()
		for i, w := range writers {
			if w.held {
				t.Fatalf("trial %d is left held", i)
			}
		}
	})
}

// insideOf returns a function that returns what a fork runs in, whether or not it has ended.
func insideOf(disk *simDisk, forks []*fork, writers []*simWriter) func(*fork) writes {
	return func(f *fork) writes {
		for i := range forks {
			if forks[i] == f {
				writers[i].disk = disk
				return writers[i]
			}
		}
		return nil
	}
}
