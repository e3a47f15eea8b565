package cli

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// yieldToServer lets this process run only when no other process wants the processor or the disk, so that the server's
// decisions do not wait for it. It applies to each thread; new threads inherit it.
func yieldToServer() {
	const ioprioWhoProcess, ioprioIdle = 1, 3 << 13
	for range 2 { // twice, because a thread may have been started meanwhile
		threads, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return // it keeps its nice value
		}
		for _, t := range threads {
			if id, err := strconv.Atoi(t.Name()); err == nil { // the calls fail if the thread has ended
				_ = unix.SchedSetAttr(id, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_IDLE}, 0)
				_, _, _ = unix.Syscall(unix.SYS_IOPRIO_SET, ioprioWhoProcess, uintptr(id), ioprioIdle)
			}
		}
	}
}
