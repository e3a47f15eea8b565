package worker

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/outbid-dev/outbid/worker/confine"
)

// averagingNice is the nice value of averaging without an idle control group: when all cores are busy it still gets
// about a tenth of the CPU time of other processes.
const averagingNice = 10

// I/O priorities as in linux/ioprio.h: the class is stored above ioprioClassShift. The idle class is served when no
// other process uses the disk, or after a long wait.
const (
	ioprioWhoProcess = 1
	ioprioClassShift = 13
	ioprioClassIdle  = 3
)

// stepBack moves this process into the idle control group, if there is one, and lowers the CPU and I/O priority of
// each of its threads, which new threads inherit. The control group is needed because the kernel compares priorities,
// SCHED_IDLE and slices only within a group: a nice process in the server's group would run as often as trials in
// theirs, and its time would count as time of the server. The I/O priority matters because the ledger may be on the
// same disk, and every decision waits for its appends.
func stepBack(behind string) {
	if behind != "" {
		_ = confine.EnterIdleGroup(behind) // on failure it averages at normal priority
	}
	for range 2 { // twice, because a thread may have been started meanwhile
		threads, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return // on failure it averages at normal priority
		}
		for _, t := range threads {
			if id, err := strconv.Atoi(t.Name()); err == nil {
				_ = unix.Setpriority(unix.PRIO_PROCESS, id, averagingNice) // fails if the thread has ended
				_, _, _ = unix.Syscall(unix.SYS_IOPRIO_SET, ioprioWhoProcess, uintptr(id), ioprioClassIdle<<ioprioClassShift)
			}
		}
	}
}
