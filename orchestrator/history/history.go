// Package history stores every report of every sweep in one file per sweep, so that memory and snapshots need not
// hold them. Learning curves and exports are read from it. It is a projection of the ledger: reports that a crash
// loses are appended again when the end of the ledger is replayed, and damaged files are rebuilt from the ledger.
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
	// maxOpen is the maximum number of open files; the least recently used one is closed.
	maxOpen = 64
)

var namePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,127}$`)

// History holds the reports of all sweeps. It is safe for concurrent use.
type History struct {
	dir string
	max int // maximum number of open files
	// table identifies the events that are reports, and those that delete a sweep.
	table state.Table

	mu    sync.Mutex
	files map[string]*sweepFile
	clock uint64 // counts uses
	// appended is the last batch passed to Append.
	appended uint64
	// closed holds the last batch of each file that was closed. A file with fewer batches when it is opened again is
	// damaged.
	closed map[string]uint64
}

// Open opens the history in a directory. It creates the directory if it is missing, and closes it to other users,
// because it holds reports of every tenant.
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

// closeOldest closes the least recently used file. If it cannot be written, it stays open beyond the limit because of
// its pending reports; Flush will return the error.
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
		_ = oldest.file.Close() // everything is on disk
	}
}

// Append adds the reports among the events of batch seq, and removes those of deleted sweeps. Batches that a sweep's
// file already has are skipped, so part of the ledger may be replayed. Data is safely on disk only after Flush. After
// an error the reports are kept and the next call retries, except after a *DamageError.
func (h *History) Append(seq uint64, events []*outbidv1.Event) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.appended = max(h.appended, seq)
	// Add one sweep after another, because closing a file must not split its part of a batch.
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

// group groups reports by sweep, and lists the sweeps in order of appearance.
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

// Flush returns once everything appended before is on disk. It must precede a snapshot of the state. Other calls do
// not wait for the disk.
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

// flush syncs a file, unless it was closed, and so synced, in the meantime.
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
	if err := syncFile(s.path); err != nil && !errors.Is(err, os.ErrNotExist) { // the file was deleted
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

// LastSeq returns the sequence number of the last batch with a report of the sweep, or 0. A *DamageError means that
// the file must be rebuilt.
func (h *History) LastSeq(sweep string) (uint64, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s, err := h.get(sweep, false)
	if s == nil || err != nil {
		return 0, err
	}
	return s.lastSeq, s.lost
}

// Reports returns the number of reports of the sweep. If the state has more, the file must be rebuilt.
func (h *History) Reports(sweep string) (int64, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s, err := h.get(sweep, false)
	if s == nil || err != nil {
		return 0, err
	}
	return s.reports + int64(s.pending.records), s.lost
}

// Sweeps returns the sorted names of the sweeps that have a file.
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

// drop closes the file of a sweep and discards pending reports.
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
