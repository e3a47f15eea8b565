// Package trialfile opens and copies files that training code named, so that the worker takes nothing but files and
// directories that the trial's own user may read, in bounded size and time.
//
// A name is followed as far as ordinary symbolic links lead, with the rights of the caller's thread (confine.As gives it
// those of the trial). It is never followed through a link of the kernel's, such as /proc/self/fd/3 or /proc/self/root:
// through those the worker's own files would be opened, which it may read and the trial may not. Nothing is opened that
// could block, and nothing is taken of file systems that hold no files, such as proc.
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

// Errors of what training code named.
var (
	// ErrKind says that something is neither a file nor a directory.
	ErrKind = errors.New("is neither a file nor a directory")
	// ErrKernel says that a name leads into a file system of the kernel's, or through a link of the kernel's.
	ErrKernel = errors.New("leads to what only the kernel or the worker has: /proc, /sys, /dev/fd and the like are not read")
	// ErrOutside says that a name leads out of the directory that it should be below.
	ErrOutside = errors.New("is not in the trial's scratch directory")
	// ErrTooLarge says that a checkpoint has more bytes, files or levels of directories than allowed.
	ErrTooLarge = errors.New("is too large")
	// ErrChanged says that a file became shorter while it was copied.
	ErrChanged = errors.New("changed while it was copied")
)

// Limits bound a checkpoint.
type Limits struct {
	// Bytes are those of its files by their length, holes included.
	Bytes int64
	// Files counts its files, directories and links; Depth the levels of directories below it.
	Files, Depth int
}

// Bounds of a checkpoint directory, far beyond what a framework writes.
const (
	maxFiles = 200_000
	maxDepth = 100
)

// Within are the limits of a checkpoint of so many bytes.
func Within(bytes int64) Limits { return Limits{Bytes: bytes, Files: maxFiles, Depth: maxDepth} }

// Open opens a file or a directory by an absolute path. The error wraps ErrKind, ErrKernel or an error of the system's.
func Open(path string) (*os.File, fs.FileInfo, error) {
	fd, err := openNamed(path)
	if err != nil {
		return nil, nil, &fs.PathError{Op: "open", Path: shown(path), Err: err}
	}
	return accept(fd, path)
}

// OpenBelow opens a file or a directory below a directory, whose path must not be the trial's to change. No part of the
// path below it may be a symbolic link. The error wraps ErrOutside, ErrKind, ErrKernel or an error of the system's.
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

// shownPath is how much of a path stands in errors, in bytes.
const shownPath = 400

// shown returns a path that training code named as it stands in errors. It is also the name of the files that are opened.
func shown(path string) string { return sanitize.Line(path, shownPath) }

// accept makes a file of a descriptor if it is a file or a directory on a file system that keeps files, and closes it
// otherwise. It looks at what is open, whatever has the name by now.
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
