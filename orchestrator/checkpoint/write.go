package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
)

const (
	// partBytes is what one goroutine reads and writes before it goes on to its next part: files are read in long stretches.
	partBytes = 4 << 20
	// keptBytes of it are computed before they must be written, while a core's cache has them.
	keptBytes = 4 * blockBytes
)

// Write writes the whole average to w, which is written from several goroutines at once, until ctx ends. Memory is below 1 MiB
// for each core, besides what the kernel keeps of files: of those, no more than 96 MiB are mapped at once.
func (a *Average) Write(ctx context.Context, w io.WriterAt) error {
	g, ctx := errgroup.WithContext(ctx)
	workers := runtime.GOMAXPROCS(0)
	out := &turns{w: w, mapped: inMemory(w, a.size)}
	for range workers {
		g.Go(func() error { return a.writeParts(ctx, out, workers) })
	}
	return g.Wait() //nolint:wrapcheck // wrapped above
}

// writeParts is one of so many goroutines that write all parts, each the next that none has. Files are read in place where that
// can be done.
func (a *Average) writeParts(ctx context.Context, out *turns, workers int) (err error) {
	kept := &kept{a: a, out: out, memory: make([]byte, 0, keptBytes), read: fromFile()}
	all := func() error {
		for {
			off := out.parts.Add(1)*partBytes - partBytes
			if off >= a.size {
				return nil
			}
			end := min(off+partBytes, a.size)
			if err := kept.write(ctx, off, end); err != nil {
				return err
			}
			beginSync(out.w, off, end-off)
		}
	}
	maps := newWindows(a, int64(workers))
	if maps == nil {
		return all()
	}
	kept.read = reader{bytes: maps.bytes, there: true}
	defer func() { err = errors.Join(err, maps.close()) }()
	return maps.guard(all)
}

// turns lets one write at a time: the kernel does so too, and who waits for it there does so busily.
type turns struct {
	mu sync.Mutex
	w  io.WriterAt
	// parts are how many somebody has begun.
	parts atomic.Int64
	// mapped says that who would wait can write through memory meanwhile: it takes twice the work, but nobody waits for a kernel
	// that is short of free pages.
	mapped bool
}

// kept is what one goroutine has computed and not written yet.
type kept struct {
	a      *Average
	out    *turns
	read   reader
	memory []byte
}

// write computes and writes the bytes from one offset to another. While somebody else writes, it goes on as far as its memory
// has room.
func (k *kept) write(ctx context.Context, from, to int64) error {
	for off := from; off < to; {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("write the average: %w", err)
		}
		p := k.memory[len(k.memory):min(int64(len(k.memory)+blockBytes), int64(len(k.memory))+to-off)]
		if err := k.a.readAt(p, off, k.read); err != nil {
			return err
		}
		k.memory, off = k.memory[:len(k.memory)+len(p)], off+int64(len(p))
		if !k.out.mu.TryLock() {
			if off < to && len(k.memory)+blockBytes <= cap(k.memory) {
				continue
			}
			if k.out.mapped && writeMapped(k.out.w, k.memory, off-int64(len(k.memory))) {
				k.memory = k.memory[:0]
				continue
			}
			k.out.mu.Lock()
		}
		_, err := k.out.w.WriteAt(k.memory, off-int64(len(k.memory)))
		k.out.mu.Unlock()
		if err != nil {
			return fmt.Errorf("write the average: %w", err)
		}
		k.memory = k.memory[:0]
	}
	return nil
}
