//go:build unix

package health

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Free returns how many bytes and files are free in the file system of a directory. known is false if the file system
// does not limit the number of files.
func Free(dir string) (bytes, files uint64, known bool, err error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return 0, 0, false, fmt.Errorf("statfs: %w", err)
	}
	return fs.Bavail * uint64(fs.Bsize), fs.Ffree, fs.Files > 0, nil
}
