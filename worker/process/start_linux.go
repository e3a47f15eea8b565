package process

import (
	"errors"
	"os"
	"runtime"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxrssUnit is the unit of Rusage.Maxrss in bytes.
const maxrssUnit = 1 << 10

// attributes makes a process lead its group and die with its parent.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// awaitZombie returns when a child has ended, without reaping it.
func awaitZombie(pid int) {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// launch starts processes from one thread that lives as long as the host, because the kernel sends a child its death
// signal when the *thread* that started it ends. The thread ends with the goroutine, because it may have dropped
// privileges for good.
func (h *Host) launch() {
	runtime.LockOSThread()
	if unix.Gettid() == os.Getpid() { // the first thread cannot end, and its control group counts for the process
		defer runtime.UnlockOSThread()
		var other sync.WaitGroup
		other.Go(h.launch) // on another thread, because this one is locked
		other.Wait()
		return
	}
	for start := range h.starts {
		start()
	}
}
