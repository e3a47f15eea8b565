package checkpoint

import (
	"context"
	"fmt"
	"io"
	"runtime"

	"golang.org/x/sync/errgroup"
)

// partBytes is what one goroutine computes and writes at once.
const partBytes = 4 << 20

// Write writes the whole average to w, which is written from several goroutines at once, until ctx ends. Memory is some
// 6 MiB for each core.
func (a *Average) Write(ctx context.Context, w io.WriterAt) error {
	g, ctx := errgroup.WithContext(ctx)
	workers := int64(runtime.GOMAXPROCS(0))
	for k := range workers {
		g.Go(func() error {
			part := make([]byte, partBytes)
			for off := k * partBytes; off < a.size; off += workers * partBytes {
				if err := ctx.Err(); err != nil {
					return fmt.Errorf("write the average: %w", err)
				}
				p := part[:min(partBytes, a.size-off)]
				if _, err := a.ReadAt(p, off); err != nil {
					return err
				}
				if _, err := w.WriteAt(p, off); err != nil {
					return fmt.Errorf("write the average: %w", err)
				}
			}
			return nil
		})
	}
	return g.Wait() //nolint:wrapcheck // wrapped above
}
