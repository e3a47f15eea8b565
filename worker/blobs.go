package worker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"sync"

	"github.com/outbid-dev/outbid/orchestrator/objects"
)

var blobPattern = regexp.MustCompile(`^[0-9a-f]{64}$`)

// blobs caches functions from the store by the SHA-256 of their content.
type blobs struct {
	dir string
	mu  sync.Mutex
}

// get returns the path of a function, and fetches it from the store if it is not cached.
func (b *blobs) get(ctx context.Context, store objects.Access, sum string) (string, error) {
	if !blobPattern.MatchString(sum) {
		return "", fmt.Errorf("function: must be a SHA-256 in lower-case hex, got %q", sum)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	path := filepath.Join(b.dir, sum)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if err := os.MkdirAll(b.dir, 0o700); err != nil {
		return "", err
	}
	tmp := path + ".new"
	_, got, err := objects.GetFile(ctx, store, objects.BlobKey(sum), tmp)
	if errors.Is(err, objects.ErrNotFound) {
		return "", fmt.Errorf("blobs/%s is not in %s", sum, store)
	}
	if err != nil {
		return "", err
	}
	if got.SHA256 != sum {
		return "", errors.Join(fmt.Errorf("blobs/%s in %s is damaged: its SHA-256 is %s", sum, store, got.SHA256), os.Remove(tmp))
	}
	if err := os.Rename(tmp, path); err != nil {
		return "", err
	}
	return path, nil
}
