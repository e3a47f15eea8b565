package worker

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/outbid-dev/outbid/worker/health"
)

// How the worker shares a disk among trials. Writes go to the page cache first, and version 1 of control groups does
// not charge the write to the disk to the trial that caused it.
const (
	// paceTick is the time between two checks whether forks wait for the disk, and how long a throttled writer runs
	// at a time.
	paceTick = 10 * time.Millisecond
	// paceWindow is the time between two decisions. splitTick is the time between two checks which forks are writers:
	// within it, a writer can fill the cache with data that the disk needs several times as long for.
	paceWindow, splitTick = 250 * time.Millisecond, 50 * time.Millisecond
	// brakeLooks is how many consecutive checks have to find forks waiting until writers are throttled before the
	// window ends.
	brakeLooks = 3
	// heavyBytes is how many bytes of unwritten data (written by the fork, but not on the disk yet) make a fork a
	// writer.
	heavyBytes = 16 << 20
	// someBytes is how many bytes of unwritten data show that a throttled fork still writes.
	someBytes = 1 << 17
	// flushBytes is how much unwritten data of a writer makes the worker sync the file system. By default the kernel
	// starts to write back at a tenth of the memory or after thirty seconds, and then all trials wait for the whole
	// backlog.
	flushBytes = 64 << 20
	// lookShare is how many times the duration of a check pass before the next one, because a trial may have hundreds
	// of threads.
	lookShare = 50
	// busyDisk and waitShare are the parts of a window in which the disk has to be busy and forks have to wait for
	// writers to be throttled.
	busyDisk, waitShare = 0.25, 0.15
	// brakeShare is the part of the time that a throttled writer runs at first, and leastShare the least part.
	brakeShare, leastShare = 1.0 / 16, 1.0 / 64
	// quietWindows is how many consecutive windows without writes make the share of a writer recover fastest.
	quietWindows = 4
	// Factors for the share at a decision: slower while others wait; fast above the ceiling; faster below it; fastest
	// if the fork has stopped writing.
	slower, fast, faster, fastest = 0.125, 1.0125, 1.1, 4
)

// writerPace is the state of a throttled writer. share is the part of the time that it runs.
type writerPace struct {
	share   float64
	held    bool
	changes time.Time // when it is held or released next
	since   time.Time // when it was last released
	ceiling float64   // half of the share when others last waited
	braked  bool      // whether it was first held in this window
	wrote   bool      // whether it wrote in this window
	quiet   int       // consecutive windows in which it wrote nothing
}

// brake returns the pace of a fork that is held at once.
func brake(now time.Time) *writerPace {
	return &writerPace{share: brakeShare, held: true, changes: now.Add(paceTick * (1/brakeShare - 1)), braked: true}
}

// decide changes the share after a window: it falls while others wait for the disk, and recovers otherwise.
func (p *writerPace) decide(othersWait bool) {
	braked, wrote := p.braked, p.wrote
	p.braked, p.wrote = false, false
	if p.quiet++; wrote {
		p.quiet = 0
	}
	switch {
	case braked && othersWait: // others wait for data from before the fork was held
	case wrote && othersWait:
		p.ceiling = p.share / 2
		p.share = max(leastShare, p.share*slower)
	case p.quiet >= quietWindows:
		p.share *= fastest
	case p.share < p.ceiling:
		p.share *= faster
	default:
		p.share *= fast
	}
	p.share = min(1, p.share)
}

// turn reports whether the fork has to be held now. Its pause is in proportion to how long it really ran, because
// timers fire late on a busy machine.
func (p *writerPace) turn(now time.Time) (held bool) {
	switch {
	case p.share >= 1:
		p.held, p.changes = false, time.Time{}
	case now.Before(p.changes):
	case p.held || p.changes.IsZero():
		p.held, p.since, p.changes = false, now, now.Add(paceTick)
	default:
		p.held, p.changes = true, now.Add(time.Duration(float64(now.Sub(p.since))*(1/p.share-1)))
	}
	return p.held
}

// writes is implemented by confine.Confinement. It stops a trial's processes and measures their writes.
type writes interface {
	CanHold() bool
	Hold(held bool) error
	Unwritten() (int64, error)
	WaitsForDisk() bool
}

// diskPace throttles trials that fill the disk's queue while other trials on the node wait for the disk.
type diskPace struct {
	cfg *Config
	// forks lists the running forks.
	forks func() []*fork
	// inside returns what a fork's training code runs in.
	inside func(*fork) writes
	clock  func() time.Time
	// busy returns how long the disk has been busy since it was attached.
	busy func() (time.Duration, error)
	// flush syncs the file system and returns when that is done.
	flush func() error

	paces          map[*fork]*writerPace
	heavy, others  []*fork
	looks, waits   int
	nextLook       time.Time
	nextSplit      time.Time
	flushing       atomic.Bool
	began          time.Time
	busyAtTheStart time.Duration
	streak         waitStreak
}

// waitStreak is a series of consecutive checks that found forks waiting.
type waitStreak struct {
	looks int
	began time.Time
	busy  time.Duration // of the disk, at the beginning
}

func newDiskPace(cfg *Config, forks func() []*fork) *diskPace {
	dir := cmp.Or(cfg.files, cfg.Dir)
	return &diskPace{
		cfg: cfg, forks: forks, paces: map[*fork]*writerPace{}, clock: time.Now, inside: func(f *fork) writes { return f.files.confined() },
		busy:  func() (time.Duration, error) { return health.DiskBusy(dir) },
		flush: func() error { return health.Flush(dir) },
	}
}

// run throttles writers until ctx ends.
func (d *diskPace) run(ctx context.Context) {
	timer := time.NewTimer(splitTick)
	defer timer.Stop()
	defer d.releaseAll()
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		d.step(d.clock())
		if d.idle() {
			timer.Reset(splitTick)
		} else {
			timer.Reset(paceTick)
		}
	}
}

// idle reports whether look has nothing to do until the next check for writers.
func (d *diskPace) idle() bool { return len(d.paces) == 0 && (len(d.heavy) == 0 || len(d.others) == 0) }

// step does what is due.
func (d *diskPace) step(now time.Time) {
	for f, p := range d.paces {
		if held := p.held; p.turn(now) != held {
			d.hold(f, p.held)
		}
	}
	if !now.Before(d.nextSplit) {
		began := d.clock()
		d.split()
		d.nextSplit = now.Add(max(splitTick, lookShare*d.clock().Sub(began)))
	}
	if now.After(d.nextLook) {
		began := d.clock()
		d.lookForWaits(now)
		d.nextLook = now.Add(lookShare * d.clock().Sub(began))
	}
	if now.Sub(d.began) >= paceWindow {
		d.decide(now)
	}
}

// lookForWaits checks whether forks wait for the disk, and throttles the writers once they have waited for a while.
func (d *diskPace) lookForWaits(now time.Time) {
	d.looks++
	if !slices.ContainsFunc(d.others, func(f *fork) bool { return d.inside(f).WaitsForDisk() }) {
		d.streak = waitStreak{}
		return
	}
	d.waits++
	if d.streak.looks++; d.streak.looks == 1 {
		d.streak.began = now
		d.streak.busy, _ = d.busy()
		return
	}
	unpaced := slices.ContainsFunc(d.heavy, func(f *fork) bool { return d.paces[f] == nil })
	if d.streak.looks < brakeLooks || !unpaced {
		return
	}
	if busy, err := d.busy(); err == nil && (busy-d.streak.busy).Seconds() > busyDisk*now.Sub(d.streak.began).Seconds() {
		d.brakeWriters(now)
	}
}

// brakeWriters throttles the writers that run at full speed.
func (d *diskPace) brakeWriters(now time.Time) {
	for _, f := range d.heavy {
		if d.paces[f] == nil {
			d.paces[f] = brake(now)
			f.activity.heldUp.Store(true)
			d.hold(f, true)
			f.slowed.Do(func() {
				f.messages.note("warning", fmt.Sprintf("%s is slowed down: it writes so much that other trials wait for the disk of node %s", trialName(f.ref), d.cfg.Node))
			})
		}
	}
}

// decide ends a window.
func (d *diskPace) decide(now time.Time) {
	busy, err := d.busy()
	if err != nil {
		busy = d.busyAtTheStart // unknown, so no fork is throttled
	}
	wait := float64(d.waits) > waitShare*float64(d.looks) && (busy-d.busyAtTheStart).Seconds() > busyDisk*now.Sub(d.began).Seconds()
	d.began, d.busyAtTheStart, d.looks, d.waits = now, busy, 0, 0
	d.split()
	wait = wait && len(d.others) > 0
	if wait {
		d.brakeWriters(now)
	}
	for f, p := range d.paces {
		p.decide(wait)
		if p.share >= 1 {
			d.release(f)
		}
	}
}

// split divides the running forks into writers and others.
func (d *diskPace) split() {
	d.heavy, d.others = d.heavy[:0], d.others[:0]
	running := d.forks()
	for f := range d.paces {
		if !slices.Contains(running, f) || f.orders.ordered().isEnding() {
			d.release(f) // its process may already serve another fork
		}
	}
	if len(running) < 2 {
		return
	}
	most := int64(0)
	for _, f := range running {
		in := d.inside(f)
		if f.orders.ordered().isEnding() || !in.CanHold() { // do not take time from forks that have to save and end
			continue
		}
		bytes, err := in.Unwritten()
		most = max(most, bytes)
		if p := d.paces[f]; p != nil && bytes >= someBytes {
			p.wrote = true
		}
		switch {
		case err != nil:
		case bytes >= heavyBytes:
			d.heavy = append(d.heavy, f)
		case d.paces[f] == nil:
			d.others = append(d.others, f)
		}
	}
	if most >= flushBytes && len(d.others) > 0 {
		d.bringToDisk()
	}
}

// bringToDisk syncs the file system in the background, unless a sync is running already. It takes as long as the disk
// needs.
func (d *diskPace) bringToDisk() {
	if !d.flushing.CompareAndSwap(false, true) {
		return
	}
	go func() {
		defer d.flushing.Store(false)
		if err := d.flush(); err != nil {
			d.cfg.Logger.Debug("cannot sync the file system", "error", err)
		}
	}()
}

func (d *diskPace) hold(f *fork, held bool) {
	if err := d.inside(f).Hold(held); err != nil {
		f.telemetry.logger().Debug("cannot hold or release a trial", "error", err)
	}
}

// release lets a fork run for good. Its time of silence begins now, because it could not send anything while it was
// held.
func (d *diskPace) release(f *fork) {
	d.hold(f, false)
	f.activity.touch()
	f.activity.heldUp.Store(false)
	delete(d.paces, f)
}

func (d *diskPace) releaseAll() {
	for f := range d.paces {
		d.release(f)
	}
}
