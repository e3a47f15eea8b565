package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
)

const (
	// partBytes is what one goroutine reads and writes before it goes on to its next part: files are read in long stretches.
	partBytes = 4 << 20
	// writtenBytes of it are computed and written at once, while a core's cache has them.
	writtenBytes = 4 * blockBytes
)

// Write writes the whole average to w by so many goroutines, all of which read and write at once, until ctx ends. Memory is below
// 1 MiB for each, besides what the kernel keeps of files: of those, no more than 96 MiB are mapped at once.
//
// A process that does nothing else wants GOMAXPROCS above workers: where no processor of Go's is idle, its runtime takes one from
// who is in the kernel for more than 20 µs, as these are most of the time, and threads that look for work in vain take cores
// from them.
func (a *Average) Write(ctx context.Context, w io.WriterAt, workers int) error {
	g, ctx := errgroup.WithContext(ctx)
	var begun atomic.Int64 // parts
	for range workers {
		g.Go(func() error { return a.writeParts(ctx, w, &begun, workers) })
	}
	return g.Wait() //nolint:wrapcheck // wrapped above
}

// writeParts is one of so many goroutines that write all parts, each the next that none has begun. Files are read in place where
// that can be done.
func (a *Average) writeParts(ctx context.Context, w io.WriterAt, begun *atomic.Int64, workers int) (err error) {
	memory, read := make([]byte, writtenBytes), fromFile()
	all := func() error {
		for {
			off := begun.Add(1)*partBytes - partBytes
			if off >= a.size {
				return nil
			}
			end := min(off+partBytes, a.size)
			if err := a.writePart(ctx, w, off, end, memory, read); err != nil {
				return err
			}
			beginSync(w, off, end-off)
		}
	}
	maps := newWindows(a, int64(workers))
	if maps == nil {
		return all()
	}
	read = reader{bytes: maps.bytes, there: true}
	defer func() { err = errors.Join(err, maps.close()) }()
	return maps.guard(all)
}

// writePart computes and writes the bytes from one offset to another, as many at once as memory holds.
func (a *Average) writePart(ctx context.Context, w io.WriterAt, from, to int64, memory []byte, read reader) error {
	for off := from; off < to; off += writtenBytes {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("write the average: %w", err)
		}
		p := memory[:min(writtenBytes, to-off)]
		if err := a.readAt(p, off, read); err != nil {
			return err
		}
		if _, err := w.WriteAt(p, off); err != nil {
			return fmt.Errorf("write the average: %w", err)
		}
	}
	return nil
}
