package checkpoint

import (
	"context"
	"errors"
	"io"
)

// SetPieceForTest has streams of the average compute so many bytes at once.
func (a *Average) SetPieceForTest(bytes int64) { a.piece = bytes }

// ExactMean is what means are tested against.
var ExactMean = exactMean

// WriteBesideAnother writes the average while another writes to the same file all the time.
func (a *Average) WriteBesideAnother(ctx context.Context, w io.WriterAt) error {
	out := &turns{w: w, mapped: inMemory(w, a.size)}
	if !out.mapped {
		return errors.New("the file is not in memory")
	}
	out.mu.Lock()
	defer out.mu.Unlock()
	return a.writeParts(ctx, out, 1)
}
