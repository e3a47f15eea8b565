package trialfile

import (
	"cmp"
	"errors"
	"io"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// listed is how many names of a directory are read at once.
const listed = 1000

// Remove removes a file or a directory with its content, as os.RemoveAll does, but with three descriptors however
// deep the directory is: otherwise a trial could exhaust the worker's descriptors by nested directories. Directories
// below the first level are moved up first. No process of the trial may still run. Links are removed and not
// followed.
func Remove(path string) error {
	if err := Empty(path); err != nil && !errors.Is(err, unix.ENOTDIR) && !errors.Is(err, unix.ELOOP) {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// Empty removes the content of a directory in that way, but not the directory. It does nothing if the directory does
// not exist.
func Empty(path string) error {
	fd, err := openToRemove(unix.AT_FDCWD, path)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err == nil {
		r := &remover{top: os.NewFile(uintptr(fd), path)}
		err = errors.Join(r.empty(r.top, r.sub), r.top.Close())
	}
	if err != nil {
		return &os.PathError{Op: "empty", Path: path, Err: err}
	}
	return nil
}

// remover empties a directory.
type remover struct {
	top *os.File
	// moved counts the directories that were moved up.
	moved int
}

// empty removes the content of a directory: files itself, directories by calling directory. An entry that cannot be
// removed does not stop the removal of the others.
func (r *remover) empty(dir *os.File, directory func(dir *os.File, name string) error) error {
	_ = dir.Chmod(0o700) // if this fails, the removal of entries does too
	for {
		if _, err := dir.Seek(0, io.SeekStart); err != nil { // directories that were moved up may be anywhere in the list
			return err
		}
		names, err := dir.Readdirnames(listed)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		removed := false
		for _, name := range names {
			at := int(dir.Fd())
			if unix.Unlinkat(at, name, 0) == nil || unix.Unlinkat(at, name, unix.AT_REMOVEDIR) == nil {
				removed = true
				continue
			}
			failed := directory(dir, name)
			removed = removed || failed == nil
			err = cmp.Or(err, failed)
		}
		if !removed {
			return err
		}
	}
}

// sub empties and removes a directory at the top.
func (r *remover) sub(top *os.File, name string) error {
	fd, err := openToRemove(int(top.Fd()), name)
	if errors.Is(err, unix.EACCES) {
		_ = unix.Fchmodat(int(top.Fd()), name, 0o700, 0)
		fd, err = openToRemove(int(top.Fd()), name)
	}
	if err != nil {
		return err
	}
	dir := os.NewFile(uintptr(fd), name)
	if err := errors.Join(r.empty(dir, r.up), dir.Close()); err != nil {
		return err
	}
	return unix.Unlinkat(int(top.Fd()), name, unix.AT_REMOVEDIR)
}

// up moves a directory to the top.
func (r *remover) up(dir *os.File, name string) error {
	_ = unix.Fchmodat(int(dir.Fd()), name, 0o700, 0) // moving a directory needs write permission for it
	for {
		r.moved++
		err := unix.Renameat(int(dir.Fd()), name, int(r.top.Fd()), "outbid-removes-"+strconv.Itoa(r.moved))
		if !errors.Is(err, unix.ENOTEMPTY) && !errors.Is(err, unix.EEXIST) && !errors.Is(err, unix.ENOTDIR) {
			return err
		}
	}
}

func openToRemove(at int, name string) (int, error) {
	return unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
}
