// Package history keeps every report of every sweep in files of its own, so that memory and snapshots need not hold
// them: learning curves and exports read from here. It is a projection of the ledger: what a crash takes from it is
// appended again when the ledger's tail is folded, and what is damaged is rebuilt from the ledger.
package history

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

const (
	suffix = ".reports"
	// maxOpen is how many files are open at once; the one that was not used for longest is closed.
	maxOpen = 64
)

var namePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,127}$`)

// History is the reports of all sweeps. Its methods may be called concurrently.
type History struct {
	dir string
	max int // files open at once
	// table says which events are reports, and after which a sweep is forgotten.
	table state.Table

	mu    sync.Mutex
	files map[string]*sweepFile
	clock uint64 // counts uses
	// appended is the last batch that Append was given.
	appended uint64
	// closed has the last batch of each file that was closed meanwhile: one that has less when it is opened again was damaged.
	closed map[string]uint64
}

// Open opens the history in a directory, which is made if missing and is shut for other users: what trials of every tenant
// reported is in it.
func Open(dir string) (*History, error) {
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		err = os.Chmod(dir, 0o700) //nolint:gosec // a directory
	}
	if err != nil {
		return nil, fmt.Errorf("open report history: %w", err)
	}
	return &History{dir: dir, max: maxOpen, table: state.NewTable(), files: map[string]*sweepFile{}, closed: map[string]uint64{}}, nil
}

func (h *History) path(sweep string) string { return filepath.Join(h.dir, sweep+suffix) }

// get returns the open file of a sweep, or nil if it has none and create is false.
func (h *History) get(sweep string, create bool) (*sweepFile, error) {
	h.clock++
	if s := h.files[sweep]; s != nil {
		s.used = h.clock
		return s, nil
	}
	if !namePattern.MatchString(sweep) {
		return nil, fmt.Errorf("report history: sweep %q: want letters, digits, '-' or '_'", sweep)
	}
	if len(h.files) >= h.max {
		h.closeOldest()
	}
	had := h.closed[sweep]
	s, err := openFile(sweep, h.path(sweep), create && had == 0)
	if err == nil && had > 0 {
		s, err = s.mustHave(sweep, had)
	}
	if err != nil {
		return nil, fmt.Errorf("open the report history of %s: %w", sweep, err)
	}
	if s != nil {
		s.used = h.clock
		h.files[sweep] = s
	}
	return s, nil
}

// closeOldest closes the file that was not used for longest. One that cannot be written stays open, over the limit, for
// what is pending; Flush tells.
func (h *History) closeOldest() {
	var oldest *sweepFile
	for _, s := range h.files {
		if oldest == nil || s.used < oldest.used {
			oldest = s
		}
	}
	if oldest.sync() == nil {
		delete(h.files, oldest.sweep)
		h.closed[oldest.sweep] = oldest.lastSeq
		_ = oldest.file.Close() // all of it is on disk
	}
}

// Append takes the reports among the events of batch seq, and removes those of sweeps that were deleted. Batches that a sweep's file already has are passed over, so
// that folding a part of the ledger again does no harm. It writes nothing to disk for certain before Flush. After an
// error the reports are still kept and the next call tries to write them again, but for a *DamageError.
func (h *History) Append(seq uint64, events []*outbidv1.Event) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.appended = max(h.appended, seq)
	// One sweep after the other: its part of a batch must not be split by the closing of its file.
	bySweep, sweeps := group(h.table, events)
	var errs []error
	for _, sweep := range sweeps {
		s, err := h.get(sweep, true)
		if err == nil && seq > s.lastSeq {
			err = s.addBatch(seq, bySweep[sweep])
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("write the report history of %s: %w", sweep, err))
		}
	}
	for _, event := range events {
		if gone := h.table.Forgotten(event); gone != "" {
			errs = append(errs, h.remove(gone))
		}
	}
	return errors.Join(errs...)
}

// group sorts reports by sweep and lists the sweeps in the order in which they come.
func group(table state.Table, events []*outbidv1.Event) (bySweep map[string][]*outbidv1.TrialReported, sweeps []string) {
	bySweep = map[string][]*outbidv1.TrialReported{}
	for _, event := range events {
		if report := table.Report(event); report != nil {
			if bySweep[report.GetSweep()] == nil {
				sweeps = append(sweeps, report.GetSweep())
			}
			bySweep[report.GetSweep()] = append(bySweep[report.GetSweep()], report)
		}
	}
	return bySweep, sweeps
}

// Flush returns once everything appended before is on disk. A snapshot of the state may only be taken after it. Nobody
// else waits for the disk meanwhile.
func (h *History) Flush() error {
	h.mu.Lock()
	files := h.sorted()
	h.mu.Unlock()
	var errs []error
	for _, s := range files {
		if err := h.flush(s); err != nil {
			errs = append(errs, fmt.Errorf("write the report history of %s: %w", s.sweep, err))
		}
	}
	return errors.Join(errs...)
}

// flush puts a file on disk, unless it was closed, and so was put on disk, meanwhile.
func (h *History) flush(s *sweepFile) error {
	h.mu.Lock()
	var done slot
	var err error
	open := h.files[s.sweep] == s
	if open {
		done, err = s.begin()
	}
	h.mu.Unlock()
	if !open || err != nil || done.length == 0 {
		return err
	}
	if err := syncFile(s.path); err != nil && !errors.Is(err, os.ErrNotExist) { // then it was deleted
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.files[s.sweep] != s {
		return nil
	}
	return s.synced(done)
}

func (h *History) sorted() []*sweepFile {
	files := make([]*sweepFile, 0, len(h.files))
	for _, s := range h.files {
		files = append(files, s)
	}
	slices.SortFunc(files, func(a, b *sweepFile) int { return cmp.Compare(a.sweep, b.sweep) })
	return files
}

func syncFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

func syncDir(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// LastSeq returns the sequence of the last batch with a report of the sweep, 0 if there is none. A *DamageError says
// that the file must be rebuilt.
func (h *History) LastSeq(sweep string) (uint64, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s, err := h.get(sweep, false)
	if s == nil || err != nil {
		return 0, err
	}
	return s.lastSeq, s.lost
}

// Reports returns how many reports of the sweep there are: if the state counts more, the file is to be rebuilt.
func (h *History) Reports(sweep string) (int64, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s, err := h.get(sweep, false)
	if s == nil || err != nil {
		return 0, err
	}
	return s.reports + int64(s.pending.records), s.lost
}

// Sweeps lists the sweeps that have a file, in order.
func (h *History) Sweeps() ([]string, error) {
	entries, err := os.ReadDir(h.dir)
	if err != nil {
		return nil, fmt.Errorf("list the report history: %w", err)
	}
	var sweeps []string
	for _, entry := range entries {
		name, found := strings.CutSuffix(entry.Name(), suffix)
		if found && namePattern.MatchString(name) {
			sweeps = append(sweeps, name)
		}
	}
	return sweeps, nil
}

// Remove deletes the reports of a sweep.
func (h *History) Remove(sweep string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.remove(sweep)
}

func (h *History) remove(sweep string) error {
	if !namePattern.MatchString(sweep) {
		return fmt.Errorf("report history: sweep %q: want letters, digits, '-' or '_'", sweep)
	}
	err := h.drop(sweep)
	if removeErr := os.Remove(h.path(sweep)); !errors.Is(removeErr, os.ErrNotExist) {
		err = errors.Join(err, removeErr)
	}
	if err := errors.Join(err, syncDir(h.dir)); err != nil {
		return fmt.Errorf("remove the report history of %s: %w", sweep, err)
	}
	return nil
}

// drop closes the file of a sweep and forgets what is pending.
func (h *History) drop(sweep string) error {
	delete(h.closed, sweep)
	s := h.files[sweep]
	if s == nil {
		return nil
	}
	delete(h.files, sweep)
	return s.file.Close()
}

// Close flushes and closes all files.
func (h *History) Close() error {
	errs := []error{h.Flush()}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.sorted() {
		errs = append(errs, h.drop(s.sweep))
	}
	return errors.Join(errs...)
}
