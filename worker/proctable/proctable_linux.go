package proctable

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// Process is a process that is alive, not a zombie.
type Process struct {
	procfs.ProcStat
	proc procfs.Proc
}

// Marked reports whether its environment contains mark (NAME=value), which it inherits from its parent.
func (p Process) Marked(mark string) bool {
	env, err := p.proc.Environ()
	return err == nil && slices.Contains(env, mark)
}

// Get returns a process; ok is false if it is not alive.
func Get(pid int) (p Process, ok bool) {
	proc, err := procfs.NewProc(pid)
	if err != nil {
		return p, false
	}
	return of(proc)
}

func of(proc procfs.Proc) (Process, bool) {
	stat, err := proc.Stat()
	if err != nil || stat.State == "Z" || stat.State == "X" {
		return Process{}, false
	}
	return Process{ProcStat: stat, proc: proc}, true
}

// Find returns the ids of the matching processes except this one.
func Find(match func(Process) bool) ([]int, error) {
	all, err := procfs.AllProcs()
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var pids []int
	for _, proc := range all {
		if proc.PID == os.Getpid() {
			continue
		}
		if p, ok := of(proc); ok && match(p) {
			pids = append(pids, p.PID)
		}
	}
	return pids, nil
}

// OfUser returns the ids of the processes of a user, including this one.
func OfUser(uid uint32) ([]int, error) {
	all, err := procfs.AllProcs()
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var pids []int
	for _, proc := range all {
		info, err := os.Stat(fmt.Sprintf("/proc/%d", proc.PID))
		if err != nil {
			continue // gone
		}
		owner, ok := info.Sys().(*syscall.Stat_t)
		if _, lives := of(proc); ok && owner.Uid == uid && lives {
			pids = append(pids, proc.PID)
		}
	}
	return pids, nil
}

// Kill kills processes and waits until they are gone. It returns an error if the deadline passes first. Processes
// that are already gone are skipped.
func Kill(pids []int, deadline time.Time) error {
	var fds []int
	for _, pid := range pids {
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue // gone
		}
		fds = append(fds, fd)
		_ = unix.PidfdSendSignal(fd, syscall.SIGKILL, nil, 0) // ESRCH: gone
	}
	var err error
	for _, fd := range fds {
		err = errors.Join(err, await(fd, deadline), unix.Close(fd))
	}
	return err
}

// Await waits until a process is gone. It returns an error if the deadline passes first.
func Await(pid int, deadline time.Time) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil //nolint:nilerr // it is gone
	}
	return errors.Join(await(fd, deadline), unix.Close(fd))
}

func await(fd int, deadline time.Time) error {
	for {
		left := max(time.Until(deadline), 0)
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(left.Milliseconds()))
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return fmt.Errorf("wait for a process: %w", err)
		case n == 0:
			return errors.New("a process does not end in time; is it stuck in the kernel?")
		default:
			return nil
		}
	}
}

// BootID returns an id that differs after every start of the machine, or "" if it is unknown. Process ids and start
// times are meaningless in another boot.
func BootID() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(id))
}
