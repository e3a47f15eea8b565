package objects

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// tempDir has objects that are being written; keys cannot start with '.'.
const tempDir = ".tmp"

// Dir is a store in a directory, which may be on a network file system. A key is the path of a file, so a key cannot be
// a parent path of another key.
type Dir struct {
	root string
	made ownership
	// freedAtOnce is the maximum size of files that are deleted at once. Larger ones are truncated in small steps.
	freedAtOnce int64
}

// OpenDir opens the store in a directory, which is created if missing. It removes other users' access to it, or that of
// users outside the directory's group if that group may write to it.
func OpenDir(path string) (*Dir, error) {
	root, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("open object store %s: %w", path, err)
	}
	made, err := openRoot(root)
	if err != nil {
		return nil, fmt.Errorf("open object store %s: %w", path, classify(err))
	}
	d := &Dir{root: root, made: made, freedAtOnce: freedAtOnce(root)}
	if _, err := d.removeStale(time.Now().Add(-StaleAfter)); err != nil {
		return nil, fmt.Errorf("open object store %s: %w", path, classify(err))
	}
	return d, nil
}

func (d *Dir) removeStale(before time.Time) (n int, err error) {
	entries, err := os.ReadDir(filepath.Join(d.root, tempDir))
	if err != nil {
		return 0, err
	}
	for _, entry := range entries {
		info, err := entry.Info()
		if err == nil && info.ModTime().Before(before) {
			if err = os.RemoveAll(filepath.Join(d.root, tempDir, entry.Name())); err == nil {
				n++
			}
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) { // the directory belongs to another user of the group
			return n, err
		}
	}
	return n, nil
}

// String implements Store.
func (d *Dir) String() string { return "file://" + d.root }

func (d *Dir) path(key string) string { return filepath.Join(d.root, filepath.FromSlash(key)) }

// Put implements Store.
func (d *Dir) Put(ctx context.Context, key string, r io.Reader, size int64) error {
	if err := checkPut(key, size); err != nil {
		return err
	}
	temp, err := d.writeTemp(&exactReader{ctx: ctx, r: r, left: size})
	if err != nil {
		return fmt.Errorf("store %s: %w", key, classify(err))
	}
	if err := d.place(ctx, temp, key); err != nil {
		return fmt.Errorf("store %s: %w", key, classify(errors.Join(err, os.Remove(temp))))
	}
	return nil
}

// writeTemp writes r to a new temporary file, and returns its name once the file is on disk.
func (d *Dir) writeTemp(r io.Reader) (string, error) {
	f, err := os.CreateTemp(filepath.Join(d.root, tempDir), "put-*")
	if err != nil {
		return "", err
	}
	to := newSteadyWriter(f)
	_, err = io.Copy(to, r)
	if err == nil {
		err = to.end()
	}
	if err == nil {
		err = d.made.seal(f)
	}
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return "", errors.Join(err, os.Remove(f.Name()))
	}
	return f.Name(), nil
}

// place renames a complete, synced file to its key, durably. A concurrent Delete may remove a directory that was just
// created, because it is empty; then it is created again.
func (d *Dir) place(ctx context.Context, from, key string) error {
	to := d.path(key)
	for attempt := 0; ; attempt++ {
		err := d.makeParents(key)
		if err == nil {
			err = d.replace(ctx, from, to)
		}
		if err == nil {
			return syncDir(filepath.Dir(to))
		}
		if attempt == 100 || !errors.Is(err, fs.ErrNotExist) {
			return describeClash(err, key)
		}
		if _, statErr := os.Lstat(from); statErr != nil {
			return err
		}
	}
}

// describeClash explains the case that a directory does not support but a bucket does.
func describeClash(err error, key string) error {
	if errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.EISDIR) || errors.Is(err, syscall.EEXIST) {
		return fmt.Errorf("%s and a key below it, after a slash, cannot both exist in a directory", key)
	}
	return err
}

// makeParents creates the directories of a key, and syncs those that it changes.
func (d *Dir) makeParents(key string) error {
	dir := d.root
	segments := strings.Split(key, "/")
	for _, segment := range segments[:len(segments)-1] {
		parent := dir
		dir = filepath.Join(dir, segment)
		err := d.made.mkdir(dir)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err == nil {
			err = syncDir(parent)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func syncDir(path string) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // removed with all its entries
	}
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// Get implements Store.
func (d *Dir) Get(_ context.Context, key string) (io.ReadCloser, error) {
	if _, err := d.stat(key); err != nil {
		return nil, err
	}
	f, err := os.Open(d.path(key))
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", key, classify(err))
	}
	return f, nil
}

// GetRange implements Store.
func (d *Dir) GetRange(_ context.Context, key string, from, n int64) (io.ReadCloser, error) {
	if err := checkRange(key, from, n); err != nil {
		return nil, err
	}
	info, err := d.stat(key)
	if err != nil {
		return nil, err
	}
	if from >= info.Size() {
		return nil, fmt.Errorf("get %s: offset %[3]d is beyond the object's %[2]d bytes", key, info.Size(), from)
	}
	f, err := os.Open(d.path(key))
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", key, classify(err))
	}
	return section{io.NewSectionReader(f, from, n), f}, nil
}

// section is a part of a file.
type section struct {
	io.Reader
	io.Closer
}

// Stat implements Store.
func (d *Dir) Stat(_ context.Context, key string) (Info, error) {
	info, err := d.stat(key)
	if err != nil {
		return Info{}, err
	}
	return Info{Key: key, Size: info.Size(), Modified: info.ModTime()}, nil
}

func (d *Dir) stat(key string) (fs.FileInfo, error) {
	if err := CheckKey(key); err != nil {
		return nil, err
	}
	info, err := os.Stat(d.path(key))
	if err == nil && !info.Mode().IsRegular() {
		err = ErrNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("stat %s: %w", key, classify(err))
	}
	return info, nil
}

// List implements Store.
func (d *Dir) List(ctx context.Context, prefix string, f func(Info) bool) error {
	if err := checkPrefix(prefix); err != nil {
		return err
	}
	under := ""
	if cut := strings.LastIndex(prefix, "/"); cut >= 0 {
		under = prefix[:cut+1]
	}
	if _, err := d.walk(ctx, under, prefix, f); err != nil {
		return fmt.Errorf("list %s: %w", prefix, classify(err))
	}
	return nil
}

// walk lists the directory of keys that start with under, which is empty or ends with a slash. It follows the order of
// keys, which includes the slash after a directory's name.
func (d *Dir) walk(ctx context.Context, under, prefix string, f func(Info) bool) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	entries, err := os.ReadDir(d.path(under))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	key := func(e fs.DirEntry) string {
		if e.IsDir() {
			return under + e.Name() + "/"
		}
		return under + e.Name()
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return cmp.Compare(key(a), key(b)) })
	for _, entry := range entries {
		goOn, err := d.visit(ctx, key(entry), entry, prefix, f)
		if err != nil || !goOn {
			return false, err
		}
	}
	return true, nil
}

func (d *Dir) visit(ctx context.Context, key string, e fs.DirEntry, prefix string, f func(Info) bool) (bool, error) {
	if strings.HasPrefix(e.Name(), ".") {
		return true, nil
	}
	if e.IsDir() {
		if strings.HasPrefix(key, prefix) || strings.HasPrefix(prefix, key) {
			return d.walk(ctx, key, prefix, f)
		}
		return true, nil
	}
	if !strings.HasPrefix(key, prefix) || !e.Type().IsRegular() {
		return true, nil
	}
	info, err := e.Info()
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil // deleted in the meantime
	}
	if err != nil {
		return false, err
	}
	return f(Info{Key: key, Size: info.Size(), Modified: info.ModTime()}), nil
}

// Delete implements Store. It also removes directories that become empty.
func (d *Dir) Delete(ctx context.Context, key string) error {
	if err := CheckKey(key); err != nil {
		return err
	}
	if info, err := os.Lstat(d.path(key)); err == nil && info.IsDir() {
		return nil // a directory with other objects
	}
	err := d.remove(ctx, d.path(key))
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
		return fmt.Errorf("delete %s: %w", key, classify(err))
	}
	// Rmdir fails for a directory that is not empty, and for a file; both end the loop.
	dir := filepath.Dir(d.path(key))
	for dir != d.root && unix.Rmdir(dir) == nil {
		dir = filepath.Dir(dir)
	}
	return nil
}

// Check implements Store.
func (d *Dir) Check(ctx context.Context) error { return check(ctx, d) }
