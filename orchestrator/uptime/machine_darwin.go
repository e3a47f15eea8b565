package uptime

import (
	"time"

	"golang.org/x/sys/unix"
)

// machine is which start of this machine this is, and how long ago that was, the time that it slept included.
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
