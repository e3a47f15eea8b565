// Package objects stores checkpoints and functions as named objects, in a directory or in MinIO / S3.
package objects

import (
	"context"
	"errors"
	"io"
	"time"
)

// Store keeps objects by key. Keys are relative slash-separated paths of letters, digits, '.', '_' and '-'. Every
// method is safe for concurrent use. Objects are written atomically, even if Put crashes.
type Store interface {
	// Put stores size bytes from r under key, replaces an existing object, and returns once the object is durable.
	Put(ctx context.Context, key string, r io.Reader, size int64) error
	// Get opens an object, or returns ErrNotFound.
	Get(ctx context.Context, key string) (io.ReadCloser, error)
	// GetRange opens up to n bytes of an object from an offset, fewer at its end. It returns ErrNotFound if the object
	// does not exist, and another error if the offset is beyond its end.
	GetRange(ctx context.Context, key string, from, n int64) (io.ReadCloser, error)
	// Stat describes an object, or returns ErrNotFound.
	Stat(ctx context.Context, key string) (Info, error)
	// List calls f for every object whose key starts with prefix, ordered by key, until f returns false.
	List(ctx context.Context, prefix string, f func(Info) bool) error
	// Delete removes an object. A missing object is not an error.
	Delete(ctx context.Context, key string) error
	// Check tests that objects can be written, read and deleted.
	Check(ctx context.Context) error
	// String returns the store's URL without secrets.
	String() string
}

// Info describes an object.
type Info struct {
	Key      string
	Size     int64
	Modified time.Time
}

var (
	// ErrNotFound means that no object has that key.
	ErrNotFound = errors.New("object not found")
	// ErrFull means that the store is full; a retry can succeed after space is freed.
	ErrFull = errors.New("object store is full")
	// ErrUnavailable means that the store cannot be reached now; a retry may succeed.
	ErrUnavailable = errors.New("object store is unavailable")
)
