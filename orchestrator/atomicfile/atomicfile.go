// Package atomicfile writes files atomically: after a crash a file has either its old or its new content.
package atomicfile

import (
	"errors"
	"os"
	"path/filepath"
)

// Write creates or replaces a file with the given mode and the content written by write. It writes a temporary file in
// the same directory and renames it at the end; after an error the temporary file is removed. It does not sync: after a
// power failure the file may have its old content.
func Write(path string, mode os.FileMode, write func(*os.File) error) error {
	return replace(path, mode, write, false)
}

// WriteSynced is Write for content that must survive a power failure: it returns once the content is on disk.
func WriteSynced(path string, mode os.FileMode, write func(*os.File) error) error {
	return replace(path, mode, write, true)
}

func replace(path string, mode os.FileMode, write func(*os.File) error, sync bool) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	err = write(f)
	if err == nil {
		err = f.Chmod(mode)
	}
	if err == nil && sync {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
