package process

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxrssUnit is the unit of Rusage.Maxrss in bytes.
const maxrssUnit = 1

// attributes makes a process lead its group. The process does not die with its parent, because this kernel does not
// support that: an SDK process ends when it notices that its worker is gone, other processes end when the next worker
// starts in the directory.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// awaitZombie returns when a child has ended, without reaping it.
func awaitZombie(pid int) {
	queue, err := unix.Kqueue()
	if err != nil {
		return // reaping waits for the end instead
	}
	defer unix.Close(queue) //nolint:errcheck // only read
	var end unix.Kevent_t
	unix.SetKevent(&end, pid, unix.EVFILT_PROC, unix.EV_ADD|unix.EV_ONESHOT)
	end.Fflags = unix.NOTE_EXIT
	for {
		_, err := unix.Kevent(queue, []unix.Kevent_t{end}, make([]unix.Kevent_t, 1), nil)
		if !errors.Is(err, unix.EINTR) {
			return // ESRCH: it has ended already
		}
	}
}

// launch starts processes one at a time.
func (h *Host) launch() {
	for start := range h.starts {
		start()
	}
}
