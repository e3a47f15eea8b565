package pluginhost

import (
	"fmt"
	"log/slog"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// What one program may take of the server's machine.
const (
	// maxData is its memory, but for what it shares with others.
	maxData = 4 << 30
	// maxFile is how large a file it may write, and maxFiles how many it may have open.
	maxFile  = 1 << 30
	maxFiles = 1024
	// niceness gives the server three times the share of a busy core, and oomScore has the kernel end the program before the server.
	niceness = 5
	oomScore = 500
)

// withoutPrivileges calls start, whose processes gain no privileges by what they execute. It does so on a thread that ends
// afterwards, as a thread does not get them back either.
func withoutPrivileges(start func() error) error {
	ended := make(chan error, 1)
	go func() {
		runtime.LockOSThread()              // and never unlocks it
		if unix.Gettid() == unix.Getpid() { // the main thread does not end, and is what others see of the process
			ended <- withoutPrivileges(start)
			runtime.UnlockOSThread()
			return
		}
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			ended <- fmt.Errorf("give up privileges: %w", err)
			return
		}
		ended <- start()
	}()
	return <-ended
}

// confine bounds what a program takes. What cannot be bounded here is logged.
func confine(pid int, log *slog.Logger) {
	for what, l := range map[string]struct {
		resource int
		most     uint64
	}{
		"memory": {unix.RLIMIT_DATA, maxData}, "the size of files": {unix.RLIMIT_FSIZE, maxFile},
		"open files": {unix.RLIMIT_NOFILE, maxFiles}, "core dumps": {unix.RLIMIT_CORE, 0},
	} {
		if err := unix.Prlimit(pid, l.resource, &unix.Rlimit{Cur: l.most, Max: l.most}, nil); err != nil {
			log.Warn("a plugin runs without a bound", "of", what, "err", err)
		}
	}
	if err := unix.Setpriority(unix.PRIO_PGRP, pid, niceness); err != nil {
		log.Warn("a plugin runs with the server's priority", "err", err)
	}
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), fmt.Appendf(nil, "%d", oomScore), 0o600); err != nil {
		log.Warn("the kernel may end the server before a plugin", "err", err)
	}
}
