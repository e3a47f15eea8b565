package history

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/outbid-dev/outbid/orchestrator/ledger"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Reader reads the ledger: see ledger.Ledger.
type Reader interface {
	Read(ctx context.Context, from uint64, f func(*outbidv1.Batch) error) error
}

// Rebuild restores the files of the sweeps from the whole ledger in one pass. Nothing may be appended meanwhile.
func (h *History) Rebuild(ctx context.Context, from Reader, sweeps ...string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	files := map[string]*sweepFile{}
	err := h.rebuild(ctx, from, sweeps, files)
	for _, sweep := range sweeps {
		s := files[sweep]
		if s == nil {
			continue
		}
		closeErr := s.file.Close()
		if err == nil && closeErr == nil {
			err = errors.Join(h.drop(sweep), os.Rename(s.path, h.path(sweep)))
			continue
		}
		err = errors.Join(err, closeErr, os.Remove(s.path))
	}
	if err := errors.Join(err, syncDir(h.dir)); err != nil {
		return fmt.Errorf("rebuild the report history: %w", err)
	}
	return nil
}

// lateBatches is the maximum number of batches that Mend reads while it blocks appends.
const lateBatches = 64

// Mend restores the file of one sweep from the whole ledger while others append and read. Appended reports must
// already be in the ledger. A sweep that the ledger deletes gets no file.
func (h *History) Mend(ctx context.Context, from Reader, sweep string) error {
	if !namePattern.MatchString(sweep) {
		return fmt.Errorf("mend the report history: sweep %q: want letters, digits, '-' or '_'", sweep)
	}
	path := h.path(sweep) + ".mended"
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("mend the report history of %s: %w", sweep, err)
	}
	s, err := openFile(sweep, path, true)
	if err != nil {
		return fmt.Errorf("mend the report history of %s: %w", sweep, err)
	}
	m := mending{h: h, from: from, s: s, files: map[string]*sweepFile{sweep: s}}
	err = m.run(ctx)
	if err == nil && !m.deleted {
		err = errors.Join(os.Rename(path, h.path(sweep)), h.drop(sweep), syncDir(h.dir))
	}
	if m.locked {
		h.mu.Unlock()
	}
	if err = errors.Join(err, s.file.Close()); err != nil || m.deleted {
		err = errors.Join(err, removed(path))
	}
	if err != nil {
		return fmt.Errorf("mend the report history of %s: %w", sweep, err)
	}
	return nil
}

// removed removes a file if it exists.
func removed(path string) error {
	if err := os.Remove(path); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// mending is a file that is being filled from the ledger.
type mending struct {
	h     *History
	from  Reader
	s     *sweepFile
	files map[string]*sweepFile
	// upTo is the last batch that was read.
	upTo uint64
	// deleted reports that the ledger deletes the sweep.
	deleted bool
	// locked reports that appends are blocked.
	locked bool
}

// run reads the ledger until the file is complete, and locks the history for the last batches.
func (m *mending) run(ctx context.Context) error {
	for !m.locked {
		if err := errors.Join(m.read(ctx), m.s.sync()); err != nil { // sync now, so that less is left to sync under the lock
			return err
		}
		m.h.mu.Lock()
		if m.locked = m.h.appended <= m.upTo+lateBatches; !m.locked {
			m.h.mu.Unlock()
		}
	}
	if m.h.appended > m.upTo {
		if err := m.read(ctx); err != nil {
			return err
		}
	}
	return m.s.sync()
}

// read adds the batches after the last one that was read.
func (m *mending) read(ctx context.Context) error {
	return m.from.Read(ctx, m.upTo+1, func(b *outbidv1.Batch) error {
		events, err := ledger.Decode(b)
		if err != nil {
			return err
		}
		for _, e := range events {
			m.deleted = m.deleted || m.h.table.Forgotten(e) == m.s.sweep
		}
		m.upTo = b.GetSeq()
		return m.h.appendTo(m.files, b.GetSeq(), events)
	})
}

// rebuild fills new files under temporary names.
func (h *History) rebuild(ctx context.Context, from Reader, sweeps []string, files map[string]*sweepFile) error {
	for _, sweep := range sweeps {
		if !namePattern.MatchString(sweep) {
			return fmt.Errorf("sweep %q: want letters, digits, '-' or '_'", sweep)
		}
		path := h.path(sweep) + ".new"
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		s, err := openFile(sweep, path, true)
		if err != nil {
			return err
		}
		files[sweep] = s
	}
	err := from.Read(ctx, 1, func(b *outbidv1.Batch) error {
		events, err := ledger.Decode(b)
		if err != nil {
			return err
		}
		return h.appendTo(files, b.GetSeq(), events)
	})
	if err != nil {
		return err
	}
	for _, sweep := range sweeps {
		if err := files[sweep].sync(); err != nil {
			return err
		}
	}
	return nil
}

func (h *History) appendTo(files map[string]*sweepFile, seq uint64, events []*outbidv1.Event) error {
	bySweep, sweeps := group(h.table, events)
	for _, sweep := range sweeps {
		if s := files[sweep]; s != nil {
			if err := s.addBatch(seq, bySweep[sweep]); err != nil {
				return err
			}
		}
	}
	return nil
}
