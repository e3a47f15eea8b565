package objects

import (
	"context"
	"io"
	"time"
)

// Access is access to some objects of a store. Every Store is an Access.
type Access interface {
	// Put is like Store.Put.
	Put(ctx context.Context, key string, r io.Reader, size int64) error
	// Get is like Store.Get.
	Get(ctx context.Context, key string) (io.ReadCloser, error)
	// GetRange is like Store.GetRange.
	GetRange(ctx context.Context, key string, from, n int64) (io.ReadCloser, error)
	// String returns the store's URL without secrets.
	String() string
}

// Signed is the right to read or store one object, for a client without store credentials.
type Signed struct {
	// URL accepts a GET, or a PUT of the whole object. It is empty if the object must be stored in parts.
	URL string
	// Parts are the URLs to PUT the parts; all but the last have PartBytes. Then POST their list to Complete, or send
	// DELETE to Abort.
	Parts           []string
	PartBytes       int64
	Complete, Abort string
}

// Signer signs URLs for single objects.
type Signer interface {
	// SignGet returns a URL whose bearer may read the object.
	SignGet(ctx context.Context, key string) (Signed, error)
	// SignPut returns URLs whose bearer may store the object with exactly size bytes.
	SignPut(ctx context.Context, key string, size int64) (Signed, error)
}

const (
	// signedFor is the minimum life of a signature. It must exceed clock differences and the time in an upload queue.
	signedFor = time.Hour
	// slowest is the lowest speed, in bytes per second, that stores an object before its signature expires.
	slowest = 256 << 10
	// longest is the longest life of a signature in S3.
	longest = 7 * 24 * time.Hour
)

// signedTime returns the life of a signature for an object of that size.
func signedTime(size int64) time.Duration {
	return min(signedFor+time.Duration(size/slowest)*time.Second, longest)
}

// Location returns an argument for Open in another process on this machine with the same environment, or "" if that
// process cannot open this store.
func Location(a Access) string {
	switch s := a.(type) {
	case *Dir:
		return s.root
	case *S3:
		return s.name
	}
	return ""
}

// Copies returns an Access that always copies files, while a directory store may share its own. It is for files from or
// for another user, who could change the stored file.
func Copies(a Access) Access { return copies{a} }

type copies struct{ Access }
