package history

import (
	"context"
	"errors"
	"fmt"
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
	v, err := h.view(sweep)
	if v == nil || err != nil {
		return err
	}
	err = v.read(ctx, trial, f)
	if err := errors.Join(err, v.file.Close()); err != nil {
		return fmt.Errorf("read the report history of %s: %w", sweep, err)
	}
	return nil
}

// view is what one reader sees: its own handle, so that nobody closes it meanwhile, and the blocks there are, which
// never change.
type view struct {
	sweep   string
	file    *os.File
	blocks  []block
	pending []byte
}

// view returns nil if the sweep has no reports.
func (h *History) view(sweep string) (*view, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s, err := h.get(sweep, false)
	if s == nil || err != nil {
		return nil, err
	}
	if s.lost != nil {
		return nil, s.lost
	}
	file, err := os.Open(s.path)
	if err != nil {
		return nil, fmt.Errorf("read the report history of %s: %w", sweep, err)
	}
	return &view{sweep: sweep, file: file, blocks: slices.Clip(s.blocks), pending: slices.Clone(s.pending.data)}, nil
}

func (v *view) read(ctx context.Context, trial *int32, f func(int32, *outbidv1.Report) error) error {
	for _, b := range v.blocks {
		if err := ctx.Err(); err != nil {
			return err
		}
		if trial != nil && !b.has(*trial) {
			continue
		}
		data, err := readBlock(v.file, b)
		if err != nil {
			return err
		}
		_, records, err := decodeBlock(data)
		if err != nil {
			return &DamageError{Sweep: v.sweep, Reason: fmt.Sprintf("the block at byte %d is not whole", b.offset)}
		}
		if err := eachRecord(records, trial, f); err != nil {
			return err
		}
	}
	return eachRecord(v.pending, trial, f)
}
