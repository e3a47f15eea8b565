package worker

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/outbid-dev/outbid/worker/confine"
)

// averagingNice is how far averaging steps back where it has no control group of its own: where all cores are busy it still gets about
// a tenth of what others get.
const averagingNice = 10

// A thread's priority before its disk, as the kernel counts it (linux/ioprio.h): its class stands above ioprioClassShift, and what is idle
// has its turn when nobody else wants the disk, or has waited for long.
const (
	ioprioWhoProcess = 1
	ioprioClassShift = 13
	ioprioClassIdle  = 3
)

// stepBack moves this process into a control group behind the others', if there is one, and lowers its priority: that of each of
// its threads, which those that they start inherit. The kernel compares priorities, SCHED_IDLE and slices within a group alone, so
// a nice process in the server's group still goes as often as trials in theirs, and its time counts as the server's. Before a disk it steps
// back too: the ledger's appends may go to the same one, and every decision waits for them.
func stepBack(behind string) {
	if behind != "" {
		_ = confine.EnterIdleGroup(behind) // it averages all the same
	}
	for range 2 { // a thread may have been started meanwhile
		threads, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return // it averages all the same
		}
		for _, t := range threads {
			if id, err := strconv.Atoi(t.Name()); err == nil {
				_ = unix.Setpriority(unix.PRIO_PROCESS, id, averagingNice) // one that has ended
				_, _, _ = unix.Syscall(unix.SYS_IOPRIO_SET, ioprioWhoProcess, uintptr(id), ioprioClassIdle<<ioprioClassShift)
			}
		}
	}
}
