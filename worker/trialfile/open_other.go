//go:build !linux

package trialfile

import (
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	atCWD     = unix.AT_FDCWD
	openFlags = unix.O_RDONLY | unix.O_CLOEXEC | unix.O_NONBLOCK | unix.O_NOCTTY
)

// openNamed opens an absolute path. Trials run as the worker's own user here, so that links give them nothing that they
// could not read themselves; what is below /dev, where descriptors have names, is refused all the same.
func openNamed(path string) (int, error) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return -1, err
	}
	if strings.HasPrefix(real, "/dev/") {
		return -1, ErrKernel
	}
	return unix.Open(real, openFlags, 0)
}

// openEntry opens what a directory has by a name, unless it is a symbolic link.
func openEntry(at int, name string) (int, error) {
	return unix.Openat(at, name, openFlags|unix.O_NOFOLLOW, 0)
}

func closeFD(fd int) { _ = unix.Close(fd) }

// isKernels is false: see openNamed.
func isKernels(int) bool { return false }
