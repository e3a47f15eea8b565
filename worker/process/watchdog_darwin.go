package process

import "time"

// watchdog does not exist on this system.
type watchdog struct{}

// WatchdogMain returns false, because a program is never a watchdog here.
func WatchdogMain() bool { return false }

func openWatchdog() (*watchdog, error) { return nil, nil } //nolint:nilnil // not supported here

func (h *Host) startWatchdog() {}

func (*watchdog) renew(time.Duration) {}

func (*watchdog) bites() int64 { return 0 }

func (*watchdog) close() {}

func tellReapers(*state) {}
