package objects

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

const (
	// rangeBytes is how much one request asks for where an object is read in order.
	rangeBytes = 64 << 20
	// rangeTries is how often a read is tried while the store is unavailable; the pauses between grow to some seconds.
	rangeTries = 6
)

// checkRange checks what GetRange is given.
func checkRange(key string, from, n int64) error {
	if err := CheckKey(key); err != nil {
		return err
	}
	if from < 0 || n <= 0 {
		return fmt.Errorf("get %s: %d bytes from %d on: want at least one, from at least 0 on", key, n, from)
	}
	return nil
}

// Ranged reads an object in place, as a file of known size: it implements io.ReaderAt and copies nothing to disk. Reads that
// follow each other share one request, of which no more is read than is asked for: memory is the caller's.
type Ranged struct {
	ctx   context.Context //nolint:containedctx // ReadAt has none
	store Access
	key   string
	size  int64

	mu   sync.Mutex
	body io.ReadCloser // the request that is read in order; nil for none
	left int64         // what is left of it, in bytes
	at   int64         // where the next read in order begins
}

// NewRanged reads an object of size bytes until ctx ends. Close it.
func NewRanged(ctx context.Context, store Access, key string, size int64) *Ranged {
	return &Ranged{ctx: ctx, store: store, key: key, size: size}
}

// ReadAt implements io.ReaderAt. It waits some seconds for a store that is unavailable.
func (r *Ranged) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 || off >= r.size {
		return 0, io.EOF
	}
	want := p[:min(int64(len(p)), r.size-off)]
	n := 0
	for try := 1; n < len(want); try++ {
		k, err := r.read(want[n:], off+int64(n))
		if n += k; err == nil {
			continue
		}
		if !errors.Is(err, ErrUnavailable) || try >= rangeTries {
			return n, err
		}
		select {
		case <-time.After(min(200*time.Millisecond<<(try-1), 5*time.Second)):
		case <-r.ctx.Done():
			return n, r.ctx.Err()
		}
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// read reads once: of the request that is open, or by one of its own.
func (r *Ranged) read(p []byte, off int64) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if off != r.at {
		return r.readAside(p, off)
	}
	if r.body == nil {
		n := min(max(rangeBytes, int64(len(p))), r.size-off)
		body, err := r.store.GetRange(r.ctx, r.key, off, n)
		if err != nil {
			return 0, err
		}
		r.body, r.left = body, n
	}
	n, err := io.ReadFull(r.body, p[:min(int64(len(p)), r.left)])
	r.at, r.left = r.at+int64(n), r.left-int64(n)
	if err != nil || r.left == 0 {
		err = errors.Join(r.cutOff(err), r.body.Close())
		r.body = nil
	}
	return n, err
}

// readAside reads what does not follow the last read.
func (r *Ranged) readAside(p []byte, off int64) (int, error) {
	body, err := r.store.GetRange(r.ctx, r.key, off, int64(len(p)))
	if err != nil {
		return 0, err
	}
	n, err := io.ReadFull(body, p)
	return n, errors.Join(r.cutOff(err), body.Close())
}

// cutOff says of an object that ends early that it does: what a connection that breaks says is the store's own error.
func (r *Ranged) cutOff(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF { //nolint:errorlint // ReadFull returns these themselves
		return fmt.Errorf("get %s from %s: it ends before the %d bytes that it should have", r.key, r.store, r.size)
	}
	return err
}

// Close ends the request that is open.
func (r *Ranged) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.body == nil {
		return nil
	}
	err := r.body.Close()
	r.body = nil
	return err
}
