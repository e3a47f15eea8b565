package history

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Read calls f for the reports of a sweep, or of one trial if trial is not nil, in the order of the ledger, including
// unflushed ones. Reports that are appended meanwhile are not read. Blocks without the trial are skipped, because the
// index has the lowest and highest trial and a filter. A *DamageError means that the file must be rebuilt.
func (h *History) Read(
	ctx context.Context, sweep string, trial *int32, f func(trial int32, r *outbidv1.Report) error,
) error {
	return h.read(ctx, sweep, trial, 0, f)
}

// ReadAfter is Read without the first n reports of the sweep. It skips their blocks, and reads reports that are not
// written yet from memory, so polling reads only new reports.
func (h *History) ReadAfter(ctx context.Context, sweep string, n int64, f func(trial int32, r *outbidv1.Report) error) error {
	return h.read(ctx, sweep, nil, n, f)
}

func (h *History) read(ctx context.Context, sweep string, trial *int32, skip int64, f func(int32, *outbidv1.Report) error) error {
	v, err := h.view(sweep, skip)
	if v == nil || err != nil {
		return err
	}
	err = v.read(ctx, trial, f)
	if v.file != nil {
		err = errors.Join(err, v.file.Close())
	}
	if err != nil {
		return fmt.Errorf("read the report history of %s: %w", sweep, err)
	}
	return nil
}

// view is what one reader sees: a separate file handle, which nothing else closes, and the blocks at that time, which
// never change.
type view struct {
	sweep   string
	file    *os.File // nil without blocks
	blocks  []block
	pending []byte
	// skip is the number of reports to skip in the first block, or in pending without blocks.
	skip int64
}

// view returns a view, or nil if the sweep has no reports after the first skip ones.
func (h *History) view(sweep string, skip int64) (*view, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s, err := h.get(sweep, false)
	if s == nil || err != nil {
		return nil, err
	}
	if s.lost != nil {
		return nil, s.lost
	}
	v := &view{sweep: sweep, skip: skip}
	if skip >= s.reports { // the usual case when following a sweep
		skip -= s.reports
		if skip >= int64(s.pending.records) {
			return nil, nil
		}
		v.skip, v.pending = 0, slices.Clone(s.pending.after(int(skip)))
		return v, nil
	}
	v.blocks = slices.Clip(s.blocks)
	for v.skip >= int64(v.blocks[0].records) {
		v.skip -= int64(v.blocks[0].records)
		v.blocks = v.blocks[1:]
	}
	v.pending = slices.Clone(s.pending.data)
	if v.file, err = os.Open(s.path); errors.Is(err, os.ErrNotExist) {
		return nil, s.damaged("it is gone")
	} else if err != nil {
		return nil, fmt.Errorf("read the report history of %s: %w", sweep, err)
	}
	return v, nil
}

// block returns the records of a block.
func (v *view) block(b block) ([]byte, error) {
	records, err := readBlock(v.file, b)
	if errors.Is(err, errTorn) {
		return nil, &DamageError{Sweep: v.sweep, Reason: fmt.Sprintf("the block at byte %d is not whole", b.offset)}
	}
	return records, err
}

// Verify reads the file of a sweep and returns a *DamageError if its contents are wrong.
func (h *History) Verify(ctx context.Context, sweep string) error {
	v, err := h.view(sweep, 0)
	if v == nil || v.file == nil || err != nil {
		return err
	}
	head := make([]byte, headSize)
	if _, readErr := v.file.ReadAt(head, 0); readErr == nil || errors.Is(readErr, io.EOF) {
		if _, _, ok := decodeHead(head); !ok {
			err = &DamageError{Sweep: sweep, Reason: "its head is not whole"}
		}
	} else {
		err = readErr
	}
	for _, b := range v.blocks {
		if err == nil {
			err = ctx.Err()
		}
		if err == nil {
			_, err = v.block(b)
		}
	}
	if err = errors.Join(err, v.file.Close()); err != nil {
		return fmt.Errorf("verify the report history of %s: %w", sweep, err)
	}
	return nil
}

func (v *view) read(ctx context.Context, trial *int32, f func(int32, *outbidv1.Report) error) error {
	for _, b := range v.blocks {
		if err := ctx.Err(); err != nil {
			return err
		}
		if trial != nil && !b.has(*trial) { // reads of one trial do not skip reports
			continue
		}
		records, err := v.block(b)
		if err != nil {
			return err
		}
		records, v.skip = skipRecords(records, v.skip), 0
		if err := eachRecord(records, trial, f); err != nil {
			return err
		}
	}
	return eachRecord(v.pending, trial, f)
}
