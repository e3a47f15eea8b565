//go:build !linux

package objects

import (
	"context"
	"os"
)

// discards is asked of Linux only.
func discards(string) bool { return false }

func (*Dir) remove(_ context.Context, path string) error { return os.Remove(path) }

func (*Dir) replace(_ context.Context, from, path string) error { return os.Rename(from, path) }
