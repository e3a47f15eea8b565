package process

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxrssUnit is in what the kernel counts the most memory held, in bytes.
const maxrssUnit = 1

// attributes makes a process lead a group. It does not die with who started it, as the kernel knows no such thing: one of
// the SDK's ends when it finds its worker gone, others when the next worker starts in the directory.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// awaitZombie returns when a child has ended and leaves it to be reaped.
func awaitZombie(pid int) {
	queue, err := unix.Kqueue()
	if err != nil {
		return // it is waited for when it is reaped
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

// launch starts processes, one at a time.
func (h *Host) launch() {
	for start := range h.starts {
		start()
	}
}
