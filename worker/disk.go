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

// Default limits of trials on the worker's disk.
const (
	// DefaultScratchBytes is how much the files of one trial may take: twice the largest checkpoint.
	DefaultScratchBytes = 512 << 30
	// DefaultDiskMargin is how much of the disk has to stay free.
	DefaultDiskMargin = 256 << 20
	// scratchFiles is how many files and directories a trial may have.
	scratchFiles = 2_000_000
)

const (
	// lookEvery is the time between two checks whether the disk is full. measureEvery is the least time between two
	// measurements of a trial's files; a measurement is also followed by a pause of measureShare times as long as it
	// took.
	lookEvery    = 200 * time.Millisecond
	measureEvery = 200 * time.Millisecond
	measureShare = 100
)

// diskWatch enforces the limits on the files of trials and on the free disk space.
type diskWatch struct {
	cfg *Config
	// free returns how many bytes are free where the files of trials are.
	free func() (int64, error)
	// changed is called when the disk becomes full, or is no longer full.
	changed func()
	full    bool

	mu    sync.Mutex
	forks map[*fork]*measured
}

// measured is the disk usage of a fork's files, and the time of the next measurement.
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

// all returns the running forks with their usage.
func (w *diskWatch) all() map[*fork]*measured {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := make(map[*fork]*measured, len(w.forks))
	for f, m := range w.forks {
		all[f] = m
	}
	return all
}

// running lists the running forks.
func (w *diskWatch) running() []*fork {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Keys(w.forks))
}

// run watches the disk until ctx ends.
func (w *diskWatch) run(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		w.check(ctx)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// check does the checks and measurements that are due.
func (w *diskWatch) check(ctx context.Context) {
	lacking := w.checkFree()
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

// checkFree returns an error if too little of the disk is free, or nil.
func (w *diskWatch) checkFree() error {
	margin := w.cfg.DiskMargin
	if margin <= 0 {
		return nil
	}
	free, err := w.free()
	if err != nil {
		w.cfg.Logger.Debug("cannot read how much of the disk is free", "error", err)
	}
	if err != nil || free >= margin {
		return nil //nolint:nilerr // the next write will find out
	}
	return fmt.Errorf("only %s are free on the disk of %s, and %s must stay free (--disk-margin of node %s)", humanize.IBytes(uint64(free)),
		w.cfg.files, humanize.IBytes(uint64(margin)), w.cfg.Node)
}

// measure adds up the files of a fork, and ends the fork if it exceeds a limit.
func (w *diskWatch) measure(ctx context.Context, f *fork, m *measured) {
	began := time.Now()
	var sum trialfile.Usage
	for _, dir := range f.files.writable() {
		usage, err := trialfile.Measure(ctx, dir, scratchFiles-sum.Files)
		if err != nil && !errors.Is(err, syscall.ENOENT) {
			f.telemetry.logger().Debug("cannot add up the files of a trial", "error", err)
		}
		sum.Bytes, sum.Files = sum.Bytes+usage.Bytes, sum.Files+usage.Files
	}
	m.usage = sum
	m.next = time.Now().Add(max(measureEvery, measureShare*time.Since(began)))
	switch most := w.cfg.ScratchBytes; {
	case most > 0 && sum.Bytes > most:
		f.reject(fail(outbidv1.FailureKind_FAILURE_KIND_ERROR, "its files take %s on the disk of node %s; at most %s are allowed (--scratch-bytes)",
			humanize.IBytes(uint64(sum.Bytes)), w.cfg.Node, humanize.IBytes(uint64(most))))
	case most > 0 && sum.Files > scratchFiles:
		f.reject(fail(outbidv1.FailureKind_FAILURE_KIND_ERROR, "it has too many files on node %s; at most %s are allowed", w.cfg.Node,
			humanize.Comma(scratchFiles)))
	}
}

// endLargest ends the fork with the most bytes on disk if they exceed the disk margin. It is called while the disk is
// full.
func (w *diskWatch) endLargest(why error) {
	var largest *fork
	most := w.cfg.DiskMargin
	for f, m := range w.all() {
		if f.rejection() != nil {
			return // its files are about to be removed
		}
		if m.usage.Bytes > most {
			largest, most = f, m.usage.Bytes
		}
	}
	if largest != nil {
		largest.reject(fail(outbidv1.FailureKind_FAILURE_KIND_ERROR, "its files take %s, the most of all trials there, and %s",
			humanize.IBytes(uint64(most)), why))
	}
}

// freeBytes returns how many bytes are free in the last of the directories that exists.
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
