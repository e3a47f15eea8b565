package objects

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strings"
)

// check writes, reads and deletes a small object.
func check(ctx context.Context, s Store) (err error) {
	text := rand.Text()
	key := "checks/" + text
	if err := s.Put(ctx, key, strings.NewReader(text), int64(len(text))); err != nil {
		return fmt.Errorf("check %s: write: %w", s, err)
	}
	defer func() {
		if deleteErr := s.Delete(ctx, key); deleteErr != nil {
			err = errors.Join(err, fmt.Errorf("check %s: delete: %w", s, deleteErr))
		}
	}()
	r, err := s.Get(ctx, key)
	if err != nil {
		return fmt.Errorf("check %s: read back: %w", s, err)
	}
	got, err := io.ReadAll(r)
	if err := errors.Join(err, r.Close()); err != nil {
		return fmt.Errorf("check %s: read back: %w", s, err)
	}
	if !bytes.Equal(got, []byte(text)) {
		return fmt.Errorf("check %s: %d bytes were written, but %d different ones were read back", s, len(text), len(got))
	}
	return nil
}
