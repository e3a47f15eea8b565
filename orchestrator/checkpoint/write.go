package checkpoint

import (
	"context"
	"fmt"
	"io"
	"runtime"

	"golang.org/x/sync/errgroup"
)

const (
	// partBytes is what one goroutine reads and writes before it goes on to its next part: files are read in long stretches.
	partBytes = 4 << 20
	// writeBytes of it are computed and then written, while a core's cache has them.
	writeBytes = blockBytes
)

// Write writes the whole average to w, which is written from several goroutines at once, until ctx ends. Memory is below 1 MiB
// for each core.
func (a *Average) Write(ctx context.Context, w io.WriterAt) error {
	g, ctx := errgroup.WithContext(ctx)
	workers := int64(runtime.GOMAXPROCS(0))
	for k := range workers {
		g.Go(func() error {
			memory := make([]byte, writeBytes)
			for off := k * partBytes; off < a.size; off += workers * partBytes {
				if err := a.writePart(ctx, w, off, min(off+partBytes, a.size), memory); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait() //nolint:wrapcheck // wrapped above
}

// writePart writes the bytes from one offset to another, as many at once as memory has.
func (a *Average) writePart(ctx context.Context, w io.WriterAt, from, to int64, memory []byte) error {
	for off := from; off < to; off += int64(len(memory)) {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("write the average: %w", err)
		}
		p := memory[:min(int64(len(memory)), to-off)]
		if _, err := a.ReadAt(p, off); err != nil {
			return err
		}
		if _, err := w.WriteAt(p, off); err != nil {
			return fmt.Errorf("write the average: %w", err)
		}
	}
	return nil
}
