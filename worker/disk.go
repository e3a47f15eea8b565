package worker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/dustin/go-humanize"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
	"github.com/outbid-dev/outbid/worker/health"
	"github.com/outbid-dev/outbid/worker/trialfile"
)

// What trials may have on the worker's disk, if the configuration says nothing else.
const (
	// DefaultScratchBytes is what the files of one trial may take: twice the largest checkpoint.
	DefaultScratchBytes = 512 << 30
	// DefaultDiskMargin is how much of the disk stays free.
	DefaultDiskMargin = 256 << 20
	// scratchFiles is how many files and directories a trial may have.
	scratchFiles = 2_000_000
)

const (
	// lookEvery is how often it is looked whether the disk is full, and measureEvery how often the files of a trial are
	// added up at most: less often if that takes more than a part of the time.
	lookEvery    = 200 * time.Millisecond
	measureEvery = 200 * time.Millisecond
	measureShare = 100
)

// diskWatch keeps the files of trials to what they may take, and some of the disk free.
type diskWatch struct {
	cfg *Config
	// free returns how many bytes are free where the files of trials are.
	free func() (int64, error)
	// changed hears that the disk has become full, or is no more.
	changed func()
	full    bool

	mu    sync.Mutex
	forks map[*fork]*measured
}

// measured is what the files of a fork took, and when that is looked at next.
type measured struct {
	usage trialfile.Usage
	next  time.Time
}

func newDiskWatch(cfg *Config) *diskWatch {
	w := &diskWatch{cfg: cfg, changed: func() {}, forks: map[*fork]*measured{}}
	w.free = func() (int64, error) { return freeBytes(cfg.Dir, cfg.files) }
	return w
}

func (w *diskWatch) add(f *fork) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.forks[f] = &measured{next: time.Now().Add(measureEvery)}
}

func (w *diskWatch) remove(f *fork) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.forks, f)
}

// all lists the forks that run.
func (w *diskWatch) all() map[*fork]*measured {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := make(map[*fork]*measured, len(w.forks))
	for f, m := range w.forks {
		all[f] = m
	}
	return all
}

// running lists the forks that run.
func (w *diskWatch) running() []*fork {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Keys(w.forks))
}

// run looks after the disk until ctx ends.
func (w *diskWatch) run(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		w.look(ctx)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// look does what is due.
func (w *diskWatch) look(ctx context.Context) {
	lacking := w.lacking()
	if full := lacking != nil; full != w.full {
		w.full = full
		w.changed()
	}
	now := time.Now()
	for f, m := range w.all() {
		if lacking != nil || !now.Before(m.next) {
			w.measure(ctx, f, m)
		}
	}
	if lacking != nil {
		w.endLargest(lacking)
	}
}

// lacking says that too little of the disk is free, or nil.
func (w *diskWatch) lacking() error {
	margin := w.cfg.DiskMargin
	if margin <= 0 {
		return nil
	}
	free, err := w.free()
	if err != nil {
		w.cfg.Logger.Debug("how much of the disk is free cannot be asked", "error", err)
	}
	if err != nil || free >= margin {
		return nil //nolint:nilerr // it is found out when something is written
	}
	return fmt.Errorf("only %s are free on the disk of %s, and %s are to stay free (--disk-margin of node %s)", humanize.IBytes(uint64(free)),
		w.cfg.files, humanize.IBytes(uint64(margin)), w.cfg.Node)
}

// measure adds up the files of a fork, and ends it if they take more than they may.
func (w *diskWatch) measure(ctx context.Context, f *fork, m *measured) {
	began := time.Now()
	var sum trialfile.Usage
	for _, dir := range f.writable() {
		usage, err := trialfile.Measure(ctx, dir, scratchFiles-sum.Files)
		if err != nil && !errors.Is(err, syscall.ENOENT) {
			w.cfg.Logger.Debug("the files of a trial cannot be added up", "trial", f.name(), "error", err)
		}
		sum.Bytes, sum.Files = sum.Bytes+usage.Bytes, sum.Files+usage.Files
	}
	m.usage = sum
	m.next = time.Now().Add(max(measureEvery, measureShare*time.Since(began)))
	switch most := w.cfg.ScratchBytes; {
	case most > 0 && sum.Bytes > most:
		f.reject(fail(outbidv1.FailureKind_FAILURE_KIND_ERROR, "its files take %s on the disk of node %s, of %s that a trial may have (--scratch-bytes)",
			humanize.IBytes(uint64(sum.Bytes)), w.cfg.Node, humanize.IBytes(uint64(most))))
	case most > 0 && sum.Files > scratchFiles:
		f.reject(fail(outbidv1.FailureKind_FAILURE_KIND_ERROR, "it has more files on node %s than the %s that a trial may have", w.cfg.Node,
			humanize.Comma(scratchFiles)))
	}
}

// endLargest ends the fork whose files take the most, if they take more than is to stay free: the disk is full.
func (w *diskWatch) endLargest(why error) {
	var largest *fork
	most := w.cfg.DiskMargin
	for f, m := range w.all() {
		if f.rejection() != nil {
			return // what it has is removed with it
		}
		if m.usage.Bytes > most {
			largest, most = f, m.usage.Bytes
		}
	}
	if largest != nil {
		largest.reject(fail(outbidv1.FailureKind_FAILURE_KIND_ERROR, "its files take %s, more than those of any other trial there, and %s",
			humanize.IBytes(uint64(most)), why))
	}
}

// writable are the directories that the fork's training code writes to.
func (f *fork) writable() []string {
	f.mu.Lock()
	in := f.in
	f.mu.Unlock()
	dirs := []string{f.own()}
	if home := in.Home(); home != "" {
		dirs = append(dirs, home)
	}
	return dirs
}

// freeBytes returns how many bytes are free where the first of the directories is that is there, the last first.
func freeBytes(dirs ...string) (int64, error) {
	var err error
	for _, dir := range slices.Backward(dirs) {
		var bytes uint64
		if bytes, _, _, err = health.Free(dir); err == nil {
			return int64(bytes), nil
		}
	}
	return 0, err
}
