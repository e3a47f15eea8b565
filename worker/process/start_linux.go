package process

import (
	"errors"
	"os"
	"runtime"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxrssUnit is in what the kernel counts the most memory held, in bytes.
const maxrssUnit = 1 << 10

// attributes makes a process lead a group and die with who started it.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// awaitZombie returns when a child has ended and leaves it to be reaped.
func awaitZombie(pid int) {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// launch starts processes from one thread that lives as long as the host: the kernel sends a child its parent's
// death signal when the *thread* that started it ends. The thread ends with the goroutine, as it may have given up
// privileges for good.
func (h *Host) launch() {
	runtime.LockOSThread()
	if unix.Gettid() == os.Getpid() { // the first thread cannot end, and its control group counts for the process
		defer runtime.UnlockOSThread()
		var other sync.WaitGroup
		other.Go(h.launch) // on another one, as this one is held
		other.Wait()
		return
	}
	for start := range h.starts {
		start()
	}
}
