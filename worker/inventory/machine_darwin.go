package inventory

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// coreNames returns nil, so that cores are not claimed: a process cannot be bound to cores on this system.
func coreNames() []string { return nil }

func memory() (int64, error) {
	size, err := unix.SysctlUint64("hw.memsize")
	if err != nil {
		return 0, fmt.Errorf("read the machine's memory: %w", err)
	}
	return int64(size), nil
}
