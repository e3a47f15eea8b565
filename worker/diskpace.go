package worker

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
	"github.com/outbid-dev/outbid/worker/confine"
	"github.com/outbid-dev/outbid/worker/health"
)

// How the worker shares a disk. Writes land in the page cache first, and version 1 of control groups does not charge the write to the disk to
// the trial that caused it.
const (
	// paceTick is how often it is looked whether others wait, and how long what is held up runs at a time.
	paceTick = 10 * time.Millisecond
	// paceWindow is the time between two decisions, and splitTick that between two looks at who writes: in it a writer fills the cache with what
	// the disk then takes several times as long for.
	paceWindow, splitTick = 250 * time.Millisecond, 50 * time.Millisecond
	// brakeLooks looks in a row that find others waiting hold writers up before the window ends.
	brakeLooks = 3
	// heavyBytes makes a writer: so much of what it wrote is not on the disk yet.
	heavyBytes = 16 << 20
	// someBytes tells a writer that is held up from one that writes no more.
	someBytes = 1 << 17
	// flushBytes is how much unwritten data of a writer makes the worker sync the file system. By default the kernel starts at a tenth of the
	// memory or after thirty seconds, and then all trials wait for the whole backlog.
	flushBytes = 64 << 20
	// lookShare times as long as a look took pass before the next: a trial may have hundreds of threads.
	lookShare = 50
	// busyDisk and waitShare are parts of a window: the disk was at work, and others waited.
	busyDisk, waitShare = 0.25, 0.15
	// brakeShare is the part of the time that a writer runs at first, and leastShare that at the least.
	brakeShare, leastShare = 1.0 / 16, 1.0 / 64
	// quietWindows in a row in which a writer writes nothing end its pace.
	quietWindows = 4
	// These change that part at a decision: where others wait; above half of the part at which others last waited; below it; and where the
	// writer writes no more.
	slower, fast, faster, fastest = 0.125, 1.0125, 1.1, 4
)

// writerPace is how much of the time a fork runs.
type writerPace struct {
	share   float64
	held    bool
	changes time.Time // when it is held or let run next
	since   time.Time // when it was last let run
	ceiling float64   // half of the share at which others last waited
	braked  bool      // it is held for the first time in this window
	wrote   bool      // in this window
	quiet   int       // windows in which it wrote nothing
}

// brake holds a fork at once.
func brake(now time.Time) *writerPace {
	return &writerPace{share: brakeShare, held: true, changes: now.Add(paceTick * (1/brakeShare - 1)), braked: true}
}

// decide changes the share after a window: a writer gives way while others wait, and recovers once they do not.
func (p *writerPace) decide(othersWait bool) {
	braked, wrote := p.braked, p.wrote
	p.braked, p.wrote = false, false
	if p.quiet++; wrote {
		p.quiet = 0
	}
	switch {
	case braked && othersWait: // for what it wrote before it was held
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

// turn says whether the fork is held from now on. A rest makes up for what it really ran, because timers are late on a busy machine.
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

// writes is implemented by confine.Confinement: it stops a trial's processes and returns how much they wrote.
type writes interface {
	CanHold() bool
	Hold(held bool) error
	Unwritten() (int64, error)
	WaitsForDisk() bool
}

// diskPace holds up trials that fill the disk's queue while others on the node wait for it.
type diskPace struct {
	cfg *Config
	// forks lists those that run.
	forks func() []*fork
	// inside is what a fork's training code runs in.
	inside func(*fork) writes
	clock  func() time.Time
	// busy returns for how long the disk was at work since it was made.
	busy func() (time.Duration, error)
	// flush brings what was written to the disk, and returns once it is there.
	flush func() error

	paces          map[*fork]*writerPace
	heavy, others  []*fork
	looks, waits   int
	nextLook       time.Time
	nextSplit      time.Time
	flushing       atomic.Bool
	began          time.Time
	busyAtTheStart time.Duration
	row            row
}

// row are the last looks, which all found others waiting.
type row struct {
	looks int
	began time.Time
	busy  time.Duration // of the disk, as it began
}

func newDiskPace(cfg *Config, forks func() []*fork) *diskPace {
	dir := cmp.Or(cfg.files, cfg.Dir)
	return &diskPace{
		cfg: cfg, forks: forks, paces: map[*fork]*writerPace{}, clock: time.Now, inside: func(f *fork) writes { return f.confined() },
		busy:  func() (time.Duration, error) { return health.DiskBusy(dir) },
		flush: func() error { return health.Flush(dir) },
	}
}

// run looks after the disk until ctx ends.
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
		d.look(d.clock())
		if d.idle() {
			timer.Reset(splitTick)
		} else {
			timer.Reset(paceTick)
		}
	}
}

// idle says whether there is nothing to do before it is looked again who writes.
func (d *diskPace) idle() bool { return len(d.paces) == 0 && (len(d.heavy) == 0 || len(d.others) == 0) }

// look does what is due.
func (d *diskPace) look(now time.Time) {
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

// lookForWaits looks whether others wait for the disk, and brakes the writers once they have for a while.
func (d *diskPace) lookForWaits(now time.Time) {
	d.looks++
	if !slices.ContainsFunc(d.others, func(f *fork) bool { return d.inside(f).WaitsForDisk() }) {
		d.row = row{}
		return
	}
	d.waits++
	if d.row.looks++; d.row.looks == 1 {
		d.row.began = now
		d.row.busy, _ = d.busy()
		return
	}
	unpaced := slices.ContainsFunc(d.heavy, func(f *fork) bool { return d.paces[f] == nil })
	if d.row.looks < brakeLooks || !unpaced {
		return
	}
	if busy, err := d.busy(); err == nil && (busy-d.row.busy).Seconds() > busyDisk*now.Sub(d.row.began).Seconds() {
		d.holdUp(now)
	}
}

// holdUp brakes the writers that run at full speed.
func (d *diskPace) holdUp(now time.Time) {
	for _, f := range d.heavy {
		if d.paces[f] == nil {
			d.paces[f] = brake(now)
			f.heldUp.Store(true)
			d.hold(f, true)
			f.slowed.Do(func() {
				f.note("warning", fmt.Sprintf("%s is held up when it writes: others wait for the disk of node %s that it fills", f.name(), d.cfg.Node))
			})
		}
	}
}

// decide ends a window.
func (d *diskPace) decide(now time.Time) {
	busy, err := d.busy()
	if err != nil {
		busy = d.busyAtTheStart // nobody knows, so nobody is blamed
	}
	wait := float64(d.waits) > waitShare*float64(d.looks) && (busy-d.busyAtTheStart).Seconds() > busyDisk*now.Sub(d.began).Seconds()
	d.began, d.busyAtTheStart, d.looks, d.waits = now, busy, 0, 0
	d.split()
	wait = wait && len(d.others) > 0
	if wait {
		d.holdUp(now)
	}
	for f, p := range d.paces {
		p.decide(wait)
		if p.share >= 1 {
			d.release(f)
		}
	}
}

// split finds out who writes much.
func (d *diskPace) split() {
	d.heavy, d.others = d.heavy[:0], d.others[:0]
	running := d.forks()
	for f := range d.paces {
		if !slices.Contains(running, f) || f.ending() {
			d.release(f) // its process may serve another
		}
	}
	if len(running) < 2 {
		return
	}
	most := int64(0)
	for _, f := range running {
		in := d.inside(f)
		if f.ending() || !in.CanHold() { // what is to end has little time to save
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

// bringToDisk has what was written brought to the disk, unless that is being done. It takes as long as the disk does, so nobody waits for it.
func (d *diskPace) bringToDisk() {
	if !d.flushing.CompareAndSwap(false, true) {
		return
	}
	go func() {
		defer d.flushing.Store(false)
		if err := d.flush(); err != nil {
			d.cfg.Logger.Debug("what was written cannot be brought to the disk", "error", err)
		}
	}()
}

func (d *diskPace) hold(f *fork, held bool) {
	if err := d.inside(f).Hold(held); err != nil {
		d.cfg.Logger.Debug("a trial cannot be held up", "trial", f.name(), "error", err)
	}
}

// release lets a fork run for good. It has been silent for as long as it was held.
func (d *diskPace) release(f *fork) {
	d.hold(f, false)
	f.touch()
	f.heldUp.Store(false)
	delete(d.paces, f)
}

func (d *diskPace) releaseAll() {
	for f := range d.paces {
		d.release(f)
	}
}

// ending says whether the fork was told to pause or to stop.
func (f *fork) ending() bool {
	v := f.ordered().verdict
	return v == outbidv1.Verdict_VERDICT_PAUSE || v == outbidv1.Verdict_VERDICT_STOP
}

// confined is what the fork's training code runs in; nil if that is not known.
func (f *fork) confined() *confine.Confinement {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.in
}
