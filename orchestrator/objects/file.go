package objects

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"github.com/outbid-dev/outbid/orchestrator/checksum"
)

// PutFile moves a local file to a store: on success the local file is removed and the object durable. A directory store
// on the same file system renames the file without copying; the caller must have closed it. It returns the size and the
// sums of the stored object.
func PutFile(ctx context.Context, s Access, key, path string) (size int64, sums checksum.Sums, err error) {
	if err := CheckKey(key); err != nil {
		return 0, checksum.Sums{}, err
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0) // with O_NONBLOCK because opening a FIFO would block
	if err != nil {
		return 0, checksum.Sums{}, fmt.Errorf("store %s: %w", key, err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	taken := false
	if d, ok := s.(*Dir); ok {
		size, sums, taken, err = d.putFile(ctx, key, f)
	} else {
		size, sums, err = putHashed(ctx, s, key, f)
	}
	if err != nil {
		return 0, checksum.Sums{}, fmt.Errorf("store file %s: %w", path, err)
	}
	if taken {
		return size, sums, nil
	}
	if err := removeSame(f, path); err != nil {
		return 0, checksum.Sums{}, fmt.Errorf("store file %s: remove it afterwards: %w", path, err)
	}
	return size, sums, nil
}

// removeSame removes path, unless another file is there now.
func removeSame(f *os.File, path string) error {
	ours, err := f.Stat()
	if err != nil {
		return err
	}
	there, err := os.Lstat(path)
	if err == nil && os.SameFile(ours, there) {
		err = os.Remove(path)
	}
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// putHashed stores a file, and computes its sums at the same time. If one of the two fails, the other is ended.
func putHashed(ctx context.Context, s Access, key string, f *os.File) (int64, checksum.Sums, error) {
	size, err := regularSize(f)
	if err != nil {
		return 0, checksum.Sums{}, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var sums checksum.Sums
	hashed := make(chan error, 1)
	go func() {
		var err error
		if _, sums, err = hashFile(ctx, f); err != nil {
			cancel()
		}
		hashed <- err
	}()
	err = s.Put(ctx, key, f, size)
	if err != nil {
		cancel()
	}
	if hashErr := <-hashed; err == nil || hashErr != nil && !errors.Is(hashErr, context.Canceled) {
		err = hashErr
	}
	return size, sums, err
}

// hashFile returns the file's size and sums. It does not move the offset of f.
func hashFile(ctx context.Context, f *os.File) (int64, checksum.Sums, error) {
	size, err := regularSize(f)
	if err != nil {
		return 0, checksum.Sums{}, err
	}
	h := checksum.New()
	_, err = io.Copy(h, &exactReader{ctx: ctx, r: io.NewSectionReader(f, 0, size), left: size})
	return size, h.Sums(), err
}

func regularSize(f *os.File) (int64, error) {
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", f.Name())
	}
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// putFile stores a file. It reports whether it took the file itself, or else a copy.
func (d *Dir) putFile(ctx context.Context, key string, f *os.File) (size int64, sums checksum.Sums, taken bool, err error) {
	if size, sums, err = hashFile(ctx, f); err != nil {
		return 0, checksum.Sums{}, false, err
	}
	if taken, err = d.takeFile(ctx, key, f); err == nil && !taken {
		err = d.Put(ctx, key, f, size)
	}
	return size, sums, taken, err
}

// takeFile renames the file into the store and returns true, or false if it is on another file system.
func (d *Dir) takeFile(ctx context.Context, key string, f *os.File) (bool, error) {
	if err := d.made.seal(f); err != nil {
		return false, err
	}
	if err := f.Sync(); err != nil {
		return false, classify(err)
	}
	dir, err := os.MkdirTemp(filepath.Join(d.root, tempDir), "take-*")
	if err != nil {
		return false, classify(err)
	}
	temp := filepath.Join(dir, "file")
	err = os.Rename(f.Name(), temp)
	taken := err == nil
	if taken {
		if err = d.place(ctx, temp, key); err != nil { // restore it, so that the caller can retry
			err = errors.Join(err, os.Rename(temp, f.Name()))
		}
	}
	if errors.Is(err, syscall.EXDEV) {
		err = nil
	}
	// Renaming a file to another link of itself does nothing, so remove the rest.
	return taken, classify(errors.Join(err, os.RemoveAll(dir)))
}

// GetFile writes an object to a local file atomically, replacing an existing one. From a directory store on the same
// file system it is a hard link: it is read-only and must not be modified. It returns the size and the sums of the
// file.
func GetFile(ctx context.Context, s Access, key, path string) (size int64, sums checksum.Sums, err error) {
	part := path + ".part"
	if err := os.Remove(part); err != nil && !errors.Is(err, os.ErrNotExist) {
		return 0, checksum.Sums{}, fmt.Errorf("get %s: %w", key, err)
	}
	size, sums, err = fetch(ctx, s, key, part)
	if err == nil {
		err = os.Rename(part, path)
	}
	// Remove the rest of a failure. Also, renaming a file to another link of itself leaves both.
	if removeErr := os.Remove(part); !errors.Is(removeErr, os.ErrNotExist) {
		err = errors.Join(err, removeErr)
	}
	if err != nil {
		return 0, checksum.Sums{}, fmt.Errorf("get file %s: %w", path, err)
	}
	return size, sums, nil
}

func fetch(ctx context.Context, s Access, key, part string) (int64, checksum.Sums, error) {
	d, ok := s.(*Dir)
	if !ok {
		return download(ctx, s, key, part)
	}
	if info, err := d.stat(key); err != nil {
		return 0, checksum.Sums{}, err
	} else if info.Mode().Perm()&0o222 != 0 || os.Link(d.path(key), part) != nil {
		return download(ctx, s, key, part) // other users may write to the file, or it is on another file system
	}
	f, err := os.Open(part) // open the link, because the key may already name another object
	if err != nil {
		return 0, checksum.Sums{}, err
	}
	size, sums, err := hashFile(ctx, f)
	return size, sums, errors.Join(err, f.Close())
}

func download(ctx context.Context, s Access, key, part string) (int64, checksum.Sums, error) {
	r, err := s.Get(ctx, key)
	if err != nil {
		return 0, checksum.Sums{}, err
	}
	f, err := os.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return 0, checksum.Sums{}, errors.Join(err, r.Close())
	}
	h := checksum.New()
	size, err := io.Copy(io.MultiWriter(f, h), &contextReader{ctx: ctx, r: r})
	if err := errors.Join(err, f.Close(), r.Close()); err != nil {
		return 0, checksum.Sums{}, err
	}
	return size, h.Sums(), nil
}

// contextReader fails when ctx ends.
type contextReader struct {
	ctx context.Context //nolint:containedctx // lives as long as one call
	r   io.Reader
}

// Read implements io.Reader.
func (c *contextReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}
