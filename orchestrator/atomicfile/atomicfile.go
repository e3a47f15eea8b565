// Package atomicfile writes files that are there whole or not at all, whatever ends the process meanwhile.
package atomicfile

import (
	"errors"
	"os"
	"path/filepath"
)

// Write makes a file of that mode, or replaces it, with what write says. It writes under another name in the same
// directory and renames at the end; after an error nothing of it is left. It does not sync: a machine that loses power
// may have the file of before.
func Write(path string, mode os.FileMode, write func(*os.File) error) error {
	return replace(path, mode, write, false)
}

// WriteSynced is Write for what must survive a loss of power: it returns once the content is on the disk.
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
