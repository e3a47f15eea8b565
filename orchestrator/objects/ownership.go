package objects

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Who may read a store in a directory. Code that a trial runs is another user's, often on the same machine, and must not
// read what trials of others have stored. So the store is its owner's alone; or, if the directory was made for a group
// (its group may write to it: chmod 2770), that group's too.
const (
	// ownDir and ownFile are the modes of what is stored. Nobody may write to a file: an object may share it with a copy handed
	// out by GetFile.
	ownDir, ownFile fs.FileMode = 0o700, 0o400
	// groupDir and groupFile are those where a group shares the store. What is made in a directory has its group.
	groupDir, groupFile fs.FileMode = 0o770 | fs.ModeSetgid, 0o440
)

// ownership is whose what a store makes is, and with which modes.
type ownership struct {
	dir, file fs.FileMode
	uid       int
}

// openRoot makes the directory of a store if it is missing, shuts it for everybody whom it is not for, and says whose it is.
// A process of another user, such as a worker that is root, gives the owner what it stores.
func openRoot(root string) (ownership, error) {
	o := ownership{dir: ownDir, file: ownFile}
	if err := os.MkdirAll(filepath.Dir(root), 0o755); err != nil { //nolint:gosec // not the store's
		return o, err
	}
	if err := os.Mkdir(root, ownDir); err != nil && !errors.Is(err, fs.ErrExist) {
		return o, err
	}
	var st unix.Stat_t
	if err := unix.Stat(root, &st); err != nil {
		return o, err
	}
	o.uid = int(st.Uid)
	mode := fs.FileMode(st.Mode & 0o777)
	if st.Mode&unix.S_ISGID != 0 {
		mode |= fs.ModeSetgid
	}
	if mode&0o020 != 0 {
		o.dir, o.file = groupDir, groupFile
	}
	if right := mode&o.dir.Perm() | o.dir&fs.ModeSetgid; mode != right {
		if err := os.Chmod(root, right); err != nil && !errors.Is(err, fs.ErrPermission) {
			return o, err // a process that is not its owner's leaves it as it is
		}
	}
	if err := o.mkdir(filepath.Join(root, tempDir)); err != nil && !errors.Is(err, fs.ErrExist) {
		return o, err
	}
	return o, nil
}

// mkdir makes a directory of the store.
func (o ownership) mkdir(path string) error {
	if err := os.Mkdir(path, o.dir.Perm()); err != nil {
		return err
	}
	if o.dir != ownDir { // the process's umask does not count
		if err := os.Chmod(path, o.dir); err != nil {
			return err
		}
	}
	return o.given(os.Lchown(path, o.uid, -1))
}

// seal gives a file that is to be stored its mode and its owner.
func (o ownership) seal(f *os.File) error {
	if err := f.Chmod(o.file); err != nil {
		return err
	}
	return o.given(f.Chown(o.uid, -1))
}

// given returns what went wrong as what was made was given to the owner of the store. A process that may not do that keeps it.
func (o ownership) given(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return nil
	}
	return err
}
