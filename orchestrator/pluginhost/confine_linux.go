package pluginhost

import (
	"fmt"
	"log/slog"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Limits of one program on the server's machine.
const (
	// maxData limits its memory except shared memory.
	maxData = 4 << 30
	// maxFile limits the size of files that it writes, and maxFiles its open files.
	maxFile  = 1 << 30
	maxFiles = 1024
	// niceness gives the server three times the program's share of a busy core. oomScore makes the kernel kill the
	// program before the server.
	niceness = 5
	oomScore = 500
)

// withoutPrivileges calls start, whose processes cannot gain privileges by executing programs. It runs on a thread
// that ends afterwards, because a thread cannot revert that.
func withoutPrivileges(start func() error) error {
	ended := make(chan error, 1)
	go func() {
		runtime.LockOSThread()              // and never unlocks it
		if unix.Gettid() == unix.Getpid() { // the main thread does not end, and its state counts as that of the process
			ended <- withoutPrivileges(start)
			runtime.UnlockOSThread()
			return
		}
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			ended <- fmt.Errorf("set no_new_privs: %w", err)
			return
		}
		ended <- start()
	}()
	return <-ended
}

// confine limits the resources of a program. It logs limits that cannot be set.
func confine(pid int, log *slog.Logger) {
	for what, l := range map[string]struct {
		resource int
		most     uint64
	}{
		"memory": {unix.RLIMIT_DATA, maxData}, "the size of files": {unix.RLIMIT_FSIZE, maxFile},
		"open files": {unix.RLIMIT_NOFILE, maxFiles}, "core dumps": {unix.RLIMIT_CORE, 0},
	} {
		if err := unix.Prlimit(pid, l.resource, &unix.Rlimit{Cur: l.most, Max: l.most}, nil); err != nil {
			log.Warn("cannot limit a resource of a plugin", "resource", what, "err", err)
		}
	}
	if err := unix.Setpriority(unix.PRIO_PGRP, pid, niceness); err != nil {
		log.Warn("cannot lower the priority of a plugin", "err", err)
	}
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), fmt.Appendf(nil, "%d", oomScore), 0o600); err != nil {
		log.Warn("cannot set the OOM score of a plugin; the kernel may kill the server first", "err", err)
	}
}
