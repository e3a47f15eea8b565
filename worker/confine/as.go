package confine

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// As calls f with the user's rights to files, and no others: what the user may not open, f may not either, whatever
// links lead there. Files that f makes are the user's.
func (in *Confinement) As(f func() error) error { return in.User().as(f) }

// Reaches says whether the user may enter a directory and read it.
func (u *User) Reaches(dir string) bool {
	err := u.as(func() error {
		f, err := os.Open(dir)
		if err != nil {
			return err
		}
		defer f.Close() //nolint:errcheck // only looked at
		_, err = os.Stat(filepath.Join(dir, "."))
		return err
	})
	return err == nil
}

// TakeFile moves a file that the user made below dir to a place where the user cannot get at it, and makes it the
// worker's. It takes regular files of the user's only.
func (in *Confinement) TakeFile(dir, path, to string) (err error) {
	rel, err := filepath.Rel(dir, path)
	if err != nil || rel == ".." || strings.HasPrefix(rel, "../") {
		return fmt.Errorf("%s is not in the trial's scratch directory", path)
	}
	var from *os.File
	err = in.As(func() (err error) {
		from, err = os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
		return err
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	info, err := from.Stat()
	if err != nil {
		return err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !info.Mode().IsRegular() || !ok || stat.Uid != in.user.UID {
		return fmt.Errorf("%s is no regular file of the trial's own", path)
	}
	if err := moveOpen(from, to); err != nil {
		return err
	}
	return in.As(func() error { return os.Remove(path) })
}

// takenMode lets the user read the file by the names that it still has for it, as a program does that goes on from there.
// Nobody else reaches them, nor what was taken.
const takenMode = 0o444

// moveOpen gives an open file another name, or copies it where that cannot be done, and makes it the worker's.
func moveOpen(from *os.File, to string) error {
	if linkOpen(from, to) == nil {
		return errors.Join(from.Chown(os.Geteuid(), os.Getegid()), from.Chmod(takenMode))
	}
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, from)
	return errors.Join(err, out.Close())
}
