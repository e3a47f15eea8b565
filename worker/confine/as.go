package confine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/outbid-dev/outbid/worker/trialfile"
)

// As calls f with only the user's rights to files, and with the trial's view of files: f cannot open what the user
// cannot, whatever links lead there. Files that f creates belong to the user.
func (in *Confinement) As(f func() error) error {
	if in == nil {
		return f()
	}
	return in.user.as(in.spaces, f)
}

// Reaches reports whether the user may enter a directory and read it.
func (u *User) Reaches(dir string) bool {
	err := u.as(nil, func() error {
		// O_DIRECTORY and O_NONBLOCK: a trial may have put another file there, such as a FIFO, which would block.
		f, err := os.OpenFile(dir, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NONBLOCK, 0)
		if err != nil {
			return err
		}
		defer f.Close() //nolint:errcheck // only read
		_, err = os.Stat(filepath.Join(dir, "."))
		return err
	})
	return err == nil
}

// TakenMode is the mode of a file that was taken from a trial. Only the worker can read it, and it is never written
// again.
const TakenMode = 0o400

// TakeFile moves a file of at most most bytes that the user created below dir out of the user's reach, and gives it
// to the worker, with TakenMode. It only takes regular files that belong to the user. The error wraps
// trialfile.ErrTooLarge for a larger file.
func (in *Confinement) TakeFile(ctx context.Context, dir, path, to string, most int64) (err error) {
	var from *os.File
	var info fs.FileInfo
	// With the worker's view of files, because in the trial's namespace the file could not be linked to its new
	// place.
	err = in.user.as(nil, func() (err error) {
		from, info, err = trialfile.OpenBelow(dir, path)
		return err
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !info.Mode().IsRegular() || !ok || stat.Uid != in.user.UID {
		return fmt.Errorf("%s is not a regular file that belongs to the trial", path)
	}
	if err := trialfile.CheckSize(info.Size(), most); err != nil {
		return err
	}
	if err := moveOpen(ctx, from, to, info.Size()); err != nil {
		return err
	}
	return in.user.as(nil, func() error { return os.Remove(path) })
}

// moveOpen links an open file to another name, or copies it if that fails, and gives it to the worker.
func moveOpen(ctx context.Context, from *os.File, to string, size int64) error {
	if linkOpen(from, to) == nil {
		return errors.Join(from.Chown(os.Geteuid(), os.Getegid()), from.Chmod(TakenMode))
	}
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, TakenMode)
	if err != nil {
		return err
	}
	return errors.Join(trialfile.Copy(ctx, out, from, size, func() {}), out.Close())
}
