package inventory

import (
	"errors"
	"fmt"
	"math"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// maxCores is the size of the kernel's set of CPUs.
const maxCores = 1024

// coreNames returns the names of the CPU cores that this process may use, or nil if the kernel does not report them.
// Cores without names are not claimed.
func coreNames() []string {
	var allowed unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		return nil
	}
	var names []string
	for core := range maxCores {
		if allowed.IsSet(core) {
			names = append(names, fmt.Sprint("core/", core))
		}
	}
	return names
}

func memory() (int64, error) {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return 0, fmt.Errorf("read the machine's memory: %w", err)
	}
	info, err := fs.Meminfo()
	if err != nil {
		return 0, fmt.Errorf("read the machine's memory: %w", err)
	}
	if info.MemTotalBytes == nil {
		return 0, errors.New("read the machine's memory: no MemTotal in meminfo")
	}
	return int64(min(*info.MemTotalBytes, math.MaxInt64)), nil
}
