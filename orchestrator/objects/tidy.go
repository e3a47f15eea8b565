package objects

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// StaleAfter is the age at which an upload that never ended has nobody any more who goes on with it.
const StaleAfter = 24 * time.Hour

// Tidier is a store that can clear away what uploads left behind that were neither completed nor given up.
type Tidier interface {
	// Tidy clears away those that began before a time, and says how many.
	Tidy(ctx context.Context, before time.Time) (int, error)
}

// Tidy implements Tidier: it aborts uploads in parts, which frees the parts. MinIO lists none and clears them away by itself,
// after a day.
func (s *S3) Tidy(ctx context.Context, before time.Time) (int, error) {
	if err := s.reach(ctx); err != nil {
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
			// Some servers answer with more than what begins with the prefix.
			if !strings.HasPrefix(u.Key, s.prefix) || !u.Initiated.Before(before) {
				continue
			}
			err := s.classify(s.core.AbortMultipartUpload(ctx, s.bucket, u.Key, u.UploadID))
			if errors.Is(err, ErrNotFound) {
				continue // somebody was faster
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

// Tidy implements Tidier: it removes the files of objects on their way in.
func (d *Dir) Tidy(_ context.Context, before time.Time) (int, error) {
	n, err := d.removeStale(before)
	if err != nil {
		return n, fmt.Errorf("tidy object store %s: %w", d.root, classify(err))
	}
	return n, nil
}
