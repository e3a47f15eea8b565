package objects

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// StaleAfter is the age after which an unfinished upload is considered abandoned.
const StaleAfter = 24 * time.Hour

// Tidier is a store that can remove the remains of unfinished uploads.
type Tidier interface {
	// Tidy removes those that started before a time, and returns their number.
	Tidy(ctx context.Context, before time.Time) (int, error)
}

// Tidy implements Tidier: it aborts uploads in parts, which frees the parts. MinIO does not list them, but removes them
// itself after a day.
func (s *S3) Tidy(ctx context.Context, before time.Time) (int, error) {
	if err := s.ensureBucket(ctx); err != nil {
		return 0, fmt.Errorf("tidy %w", err)
	}
	n := 0
	key, id := "", ""
	for {
		page, err := s.core.ListMultipartUploads(ctx, s.bucket, s.prefix, key, id, "", 1000)
		if err != nil {
			return n, fmt.Errorf("list unfinished uploads in %s: %w", s, s.classify(err))
		}
		for _, u := range page.Uploads {
			// Some servers return more than the keys with the prefix.
			if !strings.HasPrefix(u.Key, s.prefix) || !u.Initiated.Before(before) {
				continue
			}
			err := s.classify(s.core.AbortMultipartUpload(ctx, s.bucket, u.Key, u.UploadID))
			if errors.Is(err, ErrNotFound) {
				continue // another process was faster
			}
			if err != nil {
				return n, fmt.Errorf("abort the upload of %s in %s: %w", u.Key, s, err)
			}
			n++
		}
		if key, id = page.NextKeyMarker, page.NextUploadIDMarker; !page.IsTruncated || key == "" {
			return n, nil
		}
	}
}

// Tidy implements Tidier: it removes the temporary files of objects.
func (d *Dir) Tidy(_ context.Context, before time.Time) (int, error) {
	n, err := d.removeStale(before)
	if err != nil {
		return n, fmt.Errorf("remove unfinished uploads in object store %s: %w", d.root, classify(err))
	}
	return n, nil
}
