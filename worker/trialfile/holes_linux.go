package trialfile

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// DataAfter returns where the data of a file begins at or after a place, and where it ends: the next hole. Where that
// cannot be told, all up to size is data.
func DataAfter(f *os.File, at, size int64) (begin, end int64) {
	fd := int(f.Fd())
	begin, err := unix.Seek(fd, at, unix.SEEK_DATA)
	switch {
	case errors.Is(err, unix.ENXIO): // only a hole is left
		return size, size
	case err != nil:
		return at, size
	}
	if end, err = unix.Seek(fd, begin, unix.SEEK_HOLE); err != nil {
		return begin, size
	}
	return begin, max(begin, min(end, size))
}
