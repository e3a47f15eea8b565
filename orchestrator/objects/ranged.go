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
	// rangeBytes is the size of one request for an object that is read sequentially.
	rangeBytes = 64 << 20
	// rangeTries is how often a read is tried while the store is unavailable; the delays grow to some seconds.
	rangeTries = 6
)

// checkRange checks the arguments of GetRange.
func checkRange(key string, from, n int64) error {
	if err := CheckKey(key); err != nil {
		return err
	}
	if from < 0 || n <= 0 {
		return fmt.Errorf("get %s: %d bytes from offset %d: want at least one byte, and an offset of at least 0", key, n, from)
	}
	return nil
}

// Ranged reads an object of known size without a copy on disk; it implements io.ReaderAt. Sequential reads share one
// request, and only the requested bytes are read from it, so the caller controls the memory.
type Ranged struct {
	ctx   context.Context //nolint:containedctx // ReadAt does not have a context
	store Access
	key   string
	size  int64

	mu   sync.Mutex
	body io.ReadCloser // the open sequential request, or nil
	left int64         // its remaining bytes
	at   int64         // offset of the next sequential read
}

// NewRanged reads an object of size bytes until ctx ends. The caller must close it.
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

// read reads once, from the open request or with a separate one.
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
		err = errors.Join(r.truncatedError(err), r.body.Close())
		r.body = nil
	}
	return n, err
}

// readAside reads at another offset with a separate request.
func (r *Ranged) readAside(p []byte, off int64) (int, error) {
	body, err := r.store.GetRange(r.ctx, r.key, off, int64(len(p)))
	if err != nil {
		return 0, err
	}
	n, err := io.ReadFull(body, p)
	return n, errors.Join(r.truncatedError(err), body.Close())
}

// truncatedError converts the end of a truncated object to an error. A broken connection already is the store's error.
func (r *Ranged) truncatedError(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF { //nolint:errorlint // ReadFull returns these values themselves
		return fmt.Errorf("get %s from %s: the object ends before its %d bytes", r.key, r.store, r.size)
	}
	return err
}

// Close ends the open request.
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
