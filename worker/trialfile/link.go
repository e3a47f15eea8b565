package trialfile

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// maxTarget limits the target of a symbolic link, in bytes.
const maxTarget = 4 << 10

// isLink reports whether an open failed because of a symbolic link.
func isLink(err error) bool { return errors.Is(err, unix.ELOOP) || errors.Is(err, unix.EMLINK) }

// linkTarget returns the target of a symbolic link in an open directory.
func linkTarget(dir *os.File, name string) (string, error) {
	buf := make([]byte, maxTarget)
	n, err := unix.Readlinkat(int(dir.Fd()), name, buf)
	if err != nil {
		return "", &os.PathError{Op: "readlink", Path: name, Err: err}
	}
	return string(buf[:n]), nil
}
