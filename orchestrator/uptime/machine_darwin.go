package uptime

import (
	"time"

	"golang.org/x/sys/unix"
)

// machine returns an id of the current boot and the time since then, including sleep.
func machine() (string, time.Duration, error) {
	boot, err := unix.Sysctl("kern.bootsessionuuid")
	if err != nil {
		return "", 0, err
	}
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC_RAW, &ts); err != nil {
		return "", 0, err
	}
	return boot, time.Duration(ts.Nano()), nil
}
