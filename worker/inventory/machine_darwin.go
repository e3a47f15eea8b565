package inventory

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// coreNames names no cores: a process is not bound to some of them here, and they are not claimed.
func coreNames() []string { return nil }

func memory() (int64, error) {
	size, err := unix.SysctlUint64("hw.memsize")
	if err != nil {
		return 0, fmt.Errorf("read the machine's memory: %w", err)
	}
	return int64(size), nil
}
