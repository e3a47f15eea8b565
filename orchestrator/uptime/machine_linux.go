package uptime

import (
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// bootID is the file of the kernel's that names the time since the machine's start: another start, another name.
const bootID = "/proc/sys/kernel/random/boot_id"

// machine is which start of this machine this is, and how long ago that was, the time that it slept included.
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
