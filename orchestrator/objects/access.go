package objects

import (
	"context"
	"io"
	"time"
)

// Access is what somebody may do who reaches only some objects. Every Store is one.
type Access interface {
	// Put is Store's.
	Put(ctx context.Context, key string, r io.Reader, size int64) error
	// Get is Store's.
	Get(ctx context.Context, key string) (io.ReadCloser, error)
	// GetRange is Store's.
	GetRange(ctx context.Context, key string, from, n int64) (io.ReadCloser, error)
	// String names the store without its secrets, as a URL.
	String() string
}

// Signed is the right to read or to store one object, for who has no credentials of the store.
type Signed struct {
	// URL is read with GET or stored whole with PUT; empty if the object is to be stored in parts.
	URL string
	// Parts are stored with PUT, all but the last of PartBytes; then their list is sent to Complete with POST, or Abort is
	// called with DELETE.
	Parts           []string
	PartBytes       int64
	Complete, Abort string
}

// Signer gives others access to one object at a time.
type Signer interface {
	// SignGet lets who has the answer read an object.
	SignGet(ctx context.Context, key string) (Signed, error)
	// SignPut lets who has the answer store an object of exactly size bytes.
	SignPut(ctx context.Context, key string, size int64) (Signed, error)
}

const (
	// signedFor is how long a signature holds at least: it must outlast the clocks' differences and a queue of uploads.
	signedFor = time.Hour
	// slowest is the speed, in bytes a second, at which an object can still be stored before its signature ends.
	slowest = 256 << 10
	// longest is the longest that S3 lets a signature hold.
	longest = 7 * 24 * time.Hour
)

// signedTime is how long a signature for so many bytes holds.
func signedTime(size int64) time.Duration {
	return min(signedFor+time.Duration(size/slowest)*time.Second, longest)
}

// Location is where another process of this machine and this environment can Open the same store; "" if it cannot.
func Location(a Access) string {
	switch s := a.(type) {
	case *Dir:
		return s.root
	case *S3:
		return s.name
	}
	return ""
}

// Copies is an Access whose files are never the store's own, as those of a directory are otherwise: for files that are
// given to, or come from, somebody else, who could change what is stored.
func Copies(a Access) Access { return copies{a} }

type copies struct{ Access }
