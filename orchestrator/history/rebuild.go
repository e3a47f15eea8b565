package history

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/outbid-dev/outbid/orchestrator/ledger"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Reader reads the ledger; see ledger.Ledger.
type Reader interface {
	Read(ctx context.Context, from uint64, f func(*outbidv1.Batch) error) error
}

// Rebuild makes the files of the sweeps again from the whole ledger, in one pass. Nothing may be appended meanwhile.
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

// rebuild fills files with new ones, under other names.
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
