package health

import (
	"fmt"
	"os"
	"time"

	"github.com/prometheus/procfs/blockdevice"
	"golang.org/x/sys/unix"
)

// DiskBusy returns how long the disk of a directory has been busy since the machine started. It returns an error if
// the kernel does not report a disk for the directory, as for network or layered file systems.
func DiskBusy(dir string) (time.Duration, error) {
	var stat unix.Stat_t
	if err := unix.Stat(dir, &stat); err != nil {
		return 0, err
	}
	fs, err := blockdevice.NewDefaultFS()
	if err != nil {
		return 0, err
	}
	all, err := fs.ProcDiskstats()
	if err != nil {
		return 0, err
	}
	for _, d := range all {
		if d.MajorNumber == unix.Major(stat.Dev) && d.MinorNumber == unix.Minor(stat.Dev) {
			return time.Duration(d.IOsTotalTicks) * time.Millisecond, nil
		}
	}
	return 0, fmt.Errorf("the kernel has no statistics of disk %d:%d, which holds %s", unix.Major(stat.Dev), unix.Minor(stat.Dev), dir)
}

// Flush writes all data of the file system of a directory to its disk.
func Flush(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // a directory
	return unix.Syncfs(int(f.Fd()))
}
