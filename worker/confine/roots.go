package confine

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/outbid-dev/outbid/worker/trialfile"
)

// rootPrefix is the prefix of the name of a directory of trials' files. aliveName is the file in it that its worker
// keeps locked.
const (
	rootPrefix = "outbid-trials-"
	aliveName  = "alive"
)

// root is a worker's directory of trials' files.
type root struct {
	path  string
	alive *os.File
}

// makeRoot creates the directory of trials' files. Every user may pass through it, but only the worker may list it.
func makeRoot(base string) (*root, error) {
	base, err := rootBase(base)
	if err == nil {
		err = checkPassable(base)
	}
	if err != nil {
		return nil, fmt.Errorf("directory for trials' files: %w", err)
	}
	made := new(root)
	if made.path, err = os.MkdirTemp(base, rootPrefix); err == nil {
		err = os.Chmod(made.path, 0o711) //nolint:gosec // trials pass through it to their own directories
	}
	if err == nil {
		made.alive, err = lockAlive(made.path)
	}
	if err != nil {
		return nil, fmt.Errorf("create a directory for trials' files: %w", errors.Join(err, made.remove()))
	}
	return made, nil
}

// rootBase returns the absolute path of the parent of the directories of trials' files.
func rootBase(base string) (string, error) {
	if base == "" {
		base = "/var/tmp"
		if _, err := os.Stat(base); err != nil {
			base = os.TempDir()
		}
	}
	return filepath.Abs(base)
}

// lockAlive creates the file whose lock shows that the worker of a directory is alive. The file gets its name only
// after it is locked. It is nil on a file system without locks; then the directory of a killed worker stays.
func lockAlive(dir string) (*os.File, error) {
	unlocked := filepath.Join(dir, aliveName+".new")
	f, err := os.OpenFile(unlocked, os.O_CREATE|os.O_RDWR, 0o600) //nolint:gosec // a name of ours
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(f.Close(), os.Remove(unlocked))
	}
	return f, os.Rename(unlocked, filepath.Join(dir, aliveName))
}

// remove removes the directory. r may be nil.
func (r *root) remove() error {
	if r == nil || r.path == "" {
		return nil
	}
	err := trialfile.Remove(r.path)
	if r.alive != nil {
		err = errors.Join(err, r.alive.Close())
	}
	return err
}

// removeDeadRoots removes the directories of trials' files of workers that were killed and lost their record. Their
// trials must have ended. Directories without a lock are left alone, because they belong to workers of earlier
// versions.
func removeDeadRoots(base string, log *slog.Logger) {
	base, err := rootBase(base)
	if err != nil {
		return
	}
	found, err := filepath.Glob(filepath.Join(base, rootPrefix+"*"))
	if err != nil {
		return
	}
	for _, dir := range found {
		removed, err := removeIfDead(dir)
		switch {
		case err != nil:
			log.Warn("cannot remove the files of a killed worker's trials", "dir", dir, "error", err)
		case removed:
			log.Info("removed the files of a killed worker's trials", "dir", dir)
		}
	}
}

// removeIfDead removes a directory of trials' files if its worker is dead, and reports whether it did.
func removeIfDead(dir string) (bool, error) {
	// Other users may create directories with such names, so this only considers what the worker itself could have
	// created.
	var stat unix.Stat_t
	if err := unix.Lstat(dir, &stat); err != nil || stat.Mode&unix.S_IFMT != unix.S_IFDIR || int(stat.Uid) != os.Geteuid() {
		return false, nil //nolint:nilerr // it is gone, or of another user
	}
	fd, err := unix.Open(filepath.Join(dir, aliveName), unix.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return false, nil //nolint:nilerr // not a directory of a worker
	}
	defer func() { _ = unix.Close(fd) }()
	if unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) != nil {
		return false, nil
	}
	return true, trialfile.Remove(dir)
}
