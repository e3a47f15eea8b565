package health

import (
	"fmt"
	"os"
	"time"

	"github.com/prometheus/procfs/blockdevice"
	"golang.org/x/sys/unix"
)

// DiskBusy returns for how long the disk of a directory was at work since the machine started. It is an error where the kernel
// names no disk for it, as for file systems of a network or in layers.
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
	return 0, fmt.Errorf("the kernel counts no disk %d:%d, which %s is on", unix.Major(stat.Dev), unix.Minor(stat.Dev), dir)
}

// Flush brings everything that was written to the file system of a directory to its disk.
func Flush(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // a directory
	return unix.Syncfs(int(f.Fd()))
}
