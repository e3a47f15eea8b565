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

// Read calls f for the reports of a sweep, or of one trial of it if trial is not nil, in the order of the ledger,
// unflushed ones included. Reports appended while it runs are not read. Blocks without the trial are passed over
// unread: the index has the lowest, the highest and a filter of their trials. A *DamageError says that the file must be rebuilt.
func (h *History) Read(
	ctx context.Context, sweep string, trial *int32, f func(trial int32, r *outbidv1.Report) error,
) error {
	return h.read(ctx, sweep, trial, 0, f)
}

// ReadAfter is Read without the first n reports of the sweep. Blocks of those are passed over unread, and what is not
// written yet is read from memory: so who asks again and again for what is new reads nothing else.
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

// view is what one reader sees: its own handle, so that nobody closes it meanwhile, and the blocks there are, which
// never change.
type view struct {
	sweep   string
	file    *os.File // nil if there are no blocks
	blocks  []block
	pending []byte
	// skip is how many reports of the first block, or of what is pending if there are no blocks, are not read.
	skip int64
}

// view returns nil if the sweep has no reports after the first ones.
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
	if skip >= s.reports { // as most who follow a sweep
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

// Verify reads the file of a sweep and returns a *DamageError if it does not hold what it should.
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
		if trial != nil && !b.has(*trial) { // who reads one trial skips none
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
