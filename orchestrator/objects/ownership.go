package objects

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Access control of a directory store. A trial's code often runs as another user on the same machine, and must not read
// other trials' data. So only the owner can access the store. If the directory was made for a group, which can write to
// it (chmod 2770), that group can too.
const (
	// ownDir and ownFile are the modes of stored files. Files are not writable, because an object may share its file
	// with one that GetFile returned.
	ownDir, ownFile fs.FileMode = 0o700, 0o400
	// groupDir and groupFile are the modes if a group shares the store. Entries of a directory inherit its group.
	groupDir, groupFile fs.FileMode = 0o770 | fs.ModeSetgid, 0o440
)

// ownership is the owner and the modes of the store's files.
type ownership struct {
	dir, file fs.FileMode
	uid       int
}

// openRoot creates the directory of a store if it is missing, removes the access of others, and returns its ownership.
// A process of another user, such as a worker run by root, gives its files to the owner.
func openRoot(root string) (ownership, error) {
	o := ownership{dir: ownDir, file: ownFile}
	if err := os.MkdirAll(filepath.Dir(root), 0o755); err != nil { //nolint:gosec // not part of the store
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
			return o, err // a process of another user does not change it
		}
	}
	if err := o.mkdir(filepath.Join(root, tempDir)); err != nil && !errors.Is(err, fs.ErrExist) {
		return o, err
	}
	return o, nil
}

// mkdir creates a directory of the store.
func (o ownership) mkdir(path string) error {
	if err := os.Mkdir(path, o.dir.Perm()); err != nil {
		return err
	}
	if o.dir != ownDir { // override the process's umask
		if err := os.Chmod(path, o.dir); err != nil {
			return err
		}
	}
	return o.ignorePermission(os.Lchown(path, o.uid, -1))
}

// seal sets the mode and the owner of a file to be stored.
func (o ownership) seal(f *os.File) error {
	if err := f.Chmod(o.file); err != nil {
		return err
	}
	return o.ignorePermission(f.Chown(o.uid, -1))
}

// ignorePermission returns the error of changing the owner. A process without that permission keeps the file.
func (o ownership) ignorePermission(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return nil
	}
	return err
}
