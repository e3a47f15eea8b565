// Package trialfile opens and copies files that training code named, so that the worker only accesses files and
// directories that the trial's own user may read, in bounded size and time.
//
// Ordinary symbolic links in a name are followed, with the rights of the caller's thread (confine.As gives it those
// of the trial). Links of the kernel, such as /proc/self/fd/3 or /proc/self/root, are never followed: they could open
// the worker's own files, which the worker may read and the trial may not. Opening never blocks, and files on file
// systems of the kernel, such as proc, are refused.
package trialfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/outbid-dev/outbid/orchestrator/sanitize"
)

// Errors about files that training code named.
var (
	// ErrKind is returned for anything but files and directories.
	ErrKind = errors.New("is neither a file nor a directory")
	// ErrKernel is returned if a name leads into a file system of the kernel, or through a link of the kernel.
	ErrKernel = errors.New("leads into a kernel file system: paths in /proc, /sys, /dev/fd and the like are not allowed")
	// ErrOutside is returned if a name leads out of the directory that it has to be in.
	ErrOutside = errors.New("is not in the trial's scratch directory")
	// ErrTooLarge is returned if a checkpoint has more bytes, files or levels of directories than allowed.
	ErrTooLarge = errors.New("is too large")
	// ErrChanged is returned if a file became shorter while it was copied.
	ErrChanged = errors.New("changed while it was copied")
)

// Limits are the limits of a checkpoint.
type Limits struct {
	// Bytes is the sum of the lengths of its files, including holes.
	Bytes int64
	// Files counts its files, directories and links; Depth is the number of levels of directories.
	Files, Depth int
}

// Limits of a checkpoint directory, far beyond what a framework writes.
const (
	maxFiles = 200_000
	maxDepth = 100
)

// Within returns the limits of a checkpoint of at most bytes bytes.
func Within(bytes int64) Limits { return Limits{Bytes: bytes, Files: maxFiles, Depth: maxDepth} }

// Open opens a file or a directory by an absolute path. The error wraps ErrKind, ErrKernel or an error of the system.
func Open(path string) (*os.File, fs.FileInfo, error) {
	fd, err := openNamed(path)
	if err != nil {
		return nil, nil, &fs.PathError{Op: "open", Path: shown(path), Err: err}
	}
	return accept(fd, path)
}

// OpenBelow opens a file or a directory below a directory whose path the trial must not be able to change. No part of
// the path below it may be a symbolic link. The error wraps ErrOutside, ErrKind, ErrKernel or an error of the system.
func OpenBelow(dir, path string) (*os.File, fs.FileInfo, error) {
	rel, err := filepath.Rel(dir, path)
	if err != nil || !filepath.IsLocal(rel) || rel == "." {
		return nil, nil, fmt.Errorf("%s %w", shown(path), ErrOutside)
	}
	at, err := openEntry(atCWD, dir)
	if err != nil {
		return nil, nil, &fs.PathError{Op: "open", Path: dir, Err: err}
	}
	for name := range strings.SplitSeq(rel, string(filepath.Separator)) {
		next, err := openEntry(at, name)
		closeFD(at)
		if err != nil {
			return nil, nil, &fs.PathError{Op: "open", Path: shown(path), Err: err}
		}
		at = next
	}
	return accept(at, path)
}

// openIn opens an entry of an open directory, which must not be a symbolic link.
func openIn(dir *os.File, name string) (*os.File, fs.FileInfo, error) {
	path := filepath.Join(dir.Name(), name)
	fd, err := openEntry(int(dir.Fd()), name)
	if err != nil {
		return nil, nil, &fs.PathError{Op: "open", Path: shown(path), Err: err}
	}
	return accept(fd, path)
}

// shownPath is how many bytes of a path are quoted in errors.
const shownPath = 400

// shown returns a path that training code named in the form for errors. It is also the name of opened files.
func shown(path string) string { return sanitize.Line(path, shownPath) }

// accept returns an os.File for a descriptor of a file or a directory on a file system for users' files; otherwise it
// closes the descriptor. It checks what is open, not what has the name by now.
func accept(fd int, path string) (*os.File, fs.FileInfo, error) {
	path = shown(path)
	if isKernels(fd) {
		closeFD(fd)
		return nil, nil, fmt.Errorf("%s %w", path, ErrKernel)
	}
	f := os.NewFile(uintptr(fd), path)
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() && !info.IsDir() {
		err = fmt.Errorf("%s %w", path, ErrKind)
	}
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, info, nil
}
