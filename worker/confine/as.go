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

// As calls f with the user's rights to files, and no others, and sees files where the trial does: what the user may not open, f may not either, whatever
// links lead there. Files that f makes are the user's.
func (in *Confinement) As(f func() error) error {
	if in == nil {
		return f()
	}
	return in.user.as(in.spaces, f)
}

// Reaches says whether the user may enter a directory and read it.
func (u *User) Reaches(dir string) bool {
	err := u.as(nil, func() error {
		// Not what a trial has put there meanwhile, such as a FIFO, which would not be opened before it is written to.
		f, err := os.OpenFile(dir, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NONBLOCK, 0)
		if err != nil {
			return err
		}
		defer f.Close() //nolint:errcheck // only looked at
		_, err = os.Stat(filepath.Join(dir, "."))
		return err
	})
	return err == nil
}

// TakenMode is that of a file that was taken from a trial: it is the worker's alone, and never written again.
const TakenMode = 0o400

// TakeFile moves a file of at most so many bytes that the user made below dir to a place where the user cannot get at it,
// and makes it the worker's, with TakenMode. It takes regular files of the user's only. The error wraps
// trialfile.ErrTooLarge for a larger file.
func (in *Confinement) TakeFile(ctx context.Context, dir, path, to string, most int64) (err error) {
	var from *os.File
	var info fs.FileInfo
	// Where the worker sees files and not where the trial does: from there the file could not get another name.
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
		return fmt.Errorf("%s is not a regular file of the trial's own", path)
	}
	if err := trialfile.CheckSize(info.Size(), most); err != nil {
		return err
	}
	if err := moveOpen(ctx, from, to, info.Size()); err != nil {
		return err
	}
	return in.user.as(nil, func() error { return os.Remove(path) })
}

// moveOpen gives an open file another name, or copies it where that cannot be done, and makes it the worker's.
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
