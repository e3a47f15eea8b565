package uptime

import (
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// bootID is the kernel's file with a random id of the current boot.
const bootID = "/proc/sys/kernel/random/boot_id"

// machine returns an id of the current boot and the time since then, including sleep.
func machine() (string, time.Duration, error) {
	boot, err := os.ReadFile(bootID)
	if err != nil {
		return "", 0, err
	}
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return "", 0, err
	}
	return strings.TrimSpace(string(boot)), time.Duration(ts.Nano()), nil
}
