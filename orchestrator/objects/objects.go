// Package objects stores checkpoints and functions as named objects, in a directory or in MinIO / S3.
package objects

import (
	"context"
	"errors"
	"io"
	"time"
)

// Store keeps objects by key. Keys are relative slash-separated paths of letters, digits, '.', '_' and '-'. Every
// method may be called concurrently. An object is there whole or not at all, also after a crash during Put.
type Store interface {
	// Put stores size bytes from r under key, replacing what was there, and returns once they are durable.
	Put(ctx context.Context, key string, r io.Reader, size int64) error
	// Get opens an object; ErrNotFound if there is none.
	Get(ctx context.Context, key string) (io.ReadCloser, error)
	// GetRange opens up to n bytes of an object from a byte on, fewer if it ends before; ErrNotFound if there is none, and some
	// other error if it has no such byte.
	GetRange(ctx context.Context, key string, from, n int64) (io.ReadCloser, error)
	// Stat describes an object; ErrNotFound if there is none.
	Stat(ctx context.Context, key string) (Info, error)
	// List calls f for every object whose key begins with prefix, in order of keys, until f returns false.
	List(ctx context.Context, prefix string, f func(Info) bool) error
	// Delete removes an object; removing what is not there is no error.
	Delete(ctx context.Context, key string) error
	// Check proves that objects can be written, read and deleted.
	Check(ctx context.Context) error
	// String names the store without its secrets, as a URL.
	String() string
}

// Info describes an object.
type Info struct {
	Key      string
	Size     int64
	Modified time.Time
}

var (
	// ErrNotFound says that there is no object of that key.
	ErrNotFound = errors.New("object not found")
	// ErrFull says that the store has no room; trying again helps once somebody makes room.
	ErrFull = errors.New("object store is full")
	// ErrUnavailable says that the store cannot be reached now; trying again may help.
	ErrUnavailable = errors.New("object store is unavailable")
)
