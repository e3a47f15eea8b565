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
	// partBytes is how much a goroutine reads and writes before its next part, so that files are read in long runs.
	partBytes = 4 << 20
	// writtenBytes of a part are computed and written at once, while they are in a core's cache.
	writtenBytes = 4 * blockBytes
)

// Write writes the whole average to w with the given number of goroutines, which read and write concurrently, until ctx
// ends. It uses less than 1 MiB of memory for each, in addition to the kernel's page cache. At most 96 MiB of that are
// mapped at once.
//
// A process that does nothing else should set GOMAXPROCS above workers. If no Go processor is idle, the runtime takes
// one from each goroutine that is in the kernel for more than 20 µs, which these mostly are, and threads that spin in
// search of work take cores from them.
func (a *Average) Write(ctx context.Context, w io.WriterAt, workers int) error {
	g, ctx := errgroup.WithContext(ctx)
	var begun atomic.Int64 // parts
	for range workers {
		g.Go(func() error { return a.writeParts(ctx, w, &begun, workers) })
	}
	return g.Wait() //nolint:wrapcheck // wrapped above
}

// writeParts is the body of each goroutine: it writes parts that no other has started. Files are read in place if
// possible.
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
	read = reader{bytes: maps.bytes, inMemory: true}
	defer func() { err = errors.Join(err, maps.close()) }()
	return maps.guard(all)
}

// writePart computes and writes the bytes between two offsets, in steps of the size of memory.
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
