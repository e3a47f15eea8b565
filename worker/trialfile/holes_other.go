//go:build !linux

package trialfile

import "os"

// dataAfter takes all of a file for data.
func dataAfter(_ *os.File, at, size int64) (begin, end int64) { return at, size }
