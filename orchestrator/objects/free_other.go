//go:build !linux

package objects

import (
	"context"
	"math"
	"os"
)

// freedAtOnce returns no limit on systems other than Linux.
func freedAtOnce(string) int64 { return math.MaxInt64 }

func (*Dir) remove(_ context.Context, path string) error { return os.Remove(path) }

func (*Dir) replace(_ context.Context, from, path string) error { return os.Rename(from, path) }
