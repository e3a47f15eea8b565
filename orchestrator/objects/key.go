package objects

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"strings"
	"syscall"
)

const maxKeyBytes = 900

var (
	keyPattern    = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*$`)
	prefixPattern = regexp.MustCompile(`^([A-Za-z0-9._-]+/?)*$`)
)

// CheckKey returns an error unless key is valid: segments of letters, digits, '.', '_' and '-' that do not start with
// '.', separated by single slashes.
func CheckKey(key string) error {
	if len(key) > maxKeyBytes || !keyPattern.MatchString(key) {
		return fmt.Errorf("object key %q: want a relative path of letters, digits, '.', '_' and '-', with no "+
			"segment empty or starting with '.', of at most %d bytes", key, maxKeyBytes)
	}
	return nil
}

// checkPrefix accepts any prefix of a key, even one that ends within a segment.
func checkPrefix(prefix string) error {
	if len(prefix) > maxKeyBytes || !prefixPattern.MatchString(prefix) || strings.Contains("/"+prefix, "/.") {
		return fmt.Errorf("object prefix %q: want the start of a key", prefix)
	}
	return nil
}

// checkPut checks the arguments of Put.
func checkPut(key string, size int64) error {
	if err := CheckKey(key); err != nil {
		return err
	}
	if size < 0 {
		return fmt.Errorf("store %s: size %d: want 0 or more", key, size)
	}
	return nil
}

// exactReader reads size bytes of r. It fails when ctx ends, or if r has fewer bytes.
type exactReader struct {
	ctx  context.Context //nolint:containedctx // lives as long as one call
	r    io.Reader
	left int64
}

// Read implements io.Reader.
func (e *exactReader) Read(p []byte) (int, error) {
	if err := e.ctx.Err(); err != nil {
		return 0, err
	}
	if e.left == 0 {
		return 0, io.EOF
	}
	n, err := e.r.Read(p[:min(int64(len(p)), e.left)])
	e.left -= int64(n)
	if errors.Is(err, io.EOF) && e.left > 0 {
		return n, &shortError{missing: e.left}
	}
	if errors.Is(err, io.EOF) {
		err = nil // the next call returns it
	}
	return n, err
}

// shortError means that the caller's reader ended early: the store is not at fault.
type shortError struct{ missing int64 }

// Error implements error.
func (e *shortError) Error() string { return fmt.Sprintf("the data ended %d bytes early", e.missing) }

// classify marks an error of the system or the network as ErrFull, ErrNotFound or ErrUnavailable.
func classify(err error) error {
	var network net.Error
	switch {
	case err == nil, errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf("%w: %w", ErrFull, err)
	case errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.ENOTDIR):
		return fmt.Errorf("%w: %w", ErrNotFound, err)
	case errors.Is(err, syscall.EIO), errors.Is(err, syscall.ESTALE), errors.Is(err, syscall.ENOTCONN),
		errors.Is(err, io.ErrUnexpectedEOF), errors.As(err, &network):
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return err
}
