//go:build !linux

package trialfile

import "os"

// DataAfter takes all of a file for data.
func DataAfter(_ *os.File, at, size int64) (begin, end int64) { return at, size }
