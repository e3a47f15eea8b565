package trialfile

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// maxTarget bounds what a symbolic link may lead to, in bytes.
const maxTarget = 4 << 10

// isLink reports whether something was not opened because it is a symbolic link.
func isLink(err error) bool { return errors.Is(err, unix.ELOOP) || errors.Is(err, unix.EMLINK) }

// linkTarget reads a symbolic link in an open directory.
func linkTarget(dir *os.File, name string) (string, error) {
	buf := make([]byte, maxTarget)
	n, err := unix.Readlinkat(int(dir.Fd()), name, buf)
	if err != nil {
		return "", &os.PathError{Op: "readlink", Path: name, Err: err}
	}
	return string(buf[:n]), nil
}
