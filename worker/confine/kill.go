package confine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// killTimeout bounds the wait for killed processes to be gone, for all of them together.
const killTimeout = 10 * time.Second

// killAll kills the processes that find finds until it finds none: those that are found may have started others.
func killAll(find func() ([]int, error)) error {
	deadline := time.Now().Add(killTimeout)
	for {
		pids, err := find()
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err != nil || len(pids) == 0 {
			return err
		}
		if err := killThese(pids, deadline); err != nil {
			return err
		}
	}
}

// killThese kills processes and waits until they are gone. A process id names one process for as long as its
// descriptor is open.
func killThese(pids []int, deadline time.Time) error {
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
		err = errors.Join(err, awaitEnd(fd, deadline), unix.Close(fd))
	}
	if err == nil && !time.Now().Before(deadline) {
		err = fmt.Errorf("processes of a trial start others faster than they are killed")
	}
	return err
}

func awaitEnd(fd int, deadline time.Time) error {
	for {
		left := max(time.Until(deadline), 0)
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(left.Milliseconds()))
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return fmt.Errorf("wait for a process: %w", err)
		case n == 0:
			return fmt.Errorf("a process does not end within %s of being killed; is it stuck in the kernel?", killTimeout)
		default:
			return nil
		}
	}
}

// ofUser finds the processes of a user.
func ofUser(uid uint32) ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		info, err := e.Info()
		if err != nil {
			continue // gone
		}
		stat, ok := info.Sys().(*syscall.Stat_t)
		if ok && stat.Uid == uid && !zombie(pid) {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

func zombie(pid int) bool {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return true
	}
	stat, err := p.Stat()
	return err != nil || stat.State == "Z" || stat.State == "X"
}

// marked finds the processes that began since a time and carry a mark in their environment.
func marked(mark string, since time.Time) ([]int, error) {
	all, err := procfs.AllProcs()
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var pids []int
	for _, p := range all {
		stat, err := p.Stat()
		if err != nil || stat.State == "Z" || p.PID == os.Getpid() {
			continue
		}
		began, err := stat.StartTime()
		if err == nil && time.Unix(int64(began), 0).Before(since.Add(-time.Minute)) { // the clock may have been set
			continue
		}
		env, err := p.Environ()
		if err == nil && slices.Contains(env, mark) {
			pids = append(pids, p.PID)
		}
	}
	return pids, nil
}

// countedIn reads the count oom_kill from a file of the kernel's.
func countedIn(path string) uint64 {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if name, count, ok := strings.Cut(strings.TrimSpace(line), " "); ok && name == "oom_kill" {
			n, err := strconv.ParseUint(count, 10, 64)
			if err == nil {
				return n
			}
		}
	}
	return 0
}

// removeGroups removes a control group and those below it: only directories can be removed there, the innermost first.
// What the kernel has not quite let go of is tried again.
func removeGroups(dir string) error {
	var dirs []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	deadline := time.Now().Add(time.Second)
	for _, dir := range slices.Backward(dirs) {
		for {
			removed := unix.Rmdir(dir)
			if removed == nil || errors.Is(removed, unix.ENOENT) {
				break
			}
			if !errors.Is(removed, unix.EBUSY) || time.Now().After(deadline) {
				err = errors.Join(err, fmt.Errorf("remove control group %s: %w", dir, removed))
				break
			}
			<-time.After(time.Millisecond) // the kernel says nothing when it is done
		}
	}
	return err
}
