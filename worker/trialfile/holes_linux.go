package trialfile

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// DataAfter returns the beginning and the end of the first data of a file at or after an offset. If the file system
// does not report holes, everything up to size is data.
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
