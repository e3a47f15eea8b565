package proctable

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// zombie is the state of a process that has ended and is not reaped (SZOMB of sys/proc.h).
const zombie = 5

// again is the time between two checks whether a process has ended, because the kernel only notifies certain
// processes of its end.
const again = 5 * time.Millisecond

// Process is a process that is alive, not a zombie.
type Process struct {
	PID, PPID, PGRP int
	// Starttime is its start time, in microseconds since 1970.
	Starttime uint64
	uid       uint32
}

// StartTime returns its start time, in seconds since 1970.
func (p Process) StartTime() (float64, error) { return float64(p.Starttime) / 1e6, nil }

// Marked reports whether its environment contains mark (NAME=value), which it inherits from its parent.
func (p Process) Marked(mark string) bool {
	text, err := unix.SysctlRaw("kern.procargs2", p.PID) // arguments and environment, each terminated by a zero byte
	return err == nil && bytes.Contains(text, []byte("\x00"+mark+"\x00"))
}

// Get returns a process; ok is false if it is not alive.
func Get(pid int) (p Process, ok bool) {
	info, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil {
		return p, false
	}
	return of(info)
}

func of(info *unix.KinfoProc) (Process, bool) {
	if info.Proc.P_stat == zombie || info.Proc.P_pid == 0 {
		return Process{}, false
	}
	began := info.Proc.P_starttime
	return Process{
		PID: int(info.Proc.P_pid), PPID: int(info.Eproc.Ppid), PGRP: int(info.Eproc.Pgid),
		Starttime: uint64(began.Sec)*1e6 + uint64(began.Usec), uid: info.Eproc.Ucred.Uid,
	}, true
}

// Find returns the ids of the matching processes except this one.
func Find(match func(Process) bool) ([]int, error) {
	all, err := unix.SysctlKinfoProcSlice("kern.proc.all")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var pids []int
	for i := range all {
		if p, ok := of(&all[i]); ok && p.PID != os.Getpid() && match(p) {
			pids = append(pids, p.PID)
		}
	}
	return pids, nil
}

// OfUser returns the ids of the processes of a user, including this one.
func OfUser(uid uint32) ([]int, error) {
	pids, err := Find(func(p Process) bool { return p.uid == uid })
	if uid == uint32(os.Getuid()) {
		pids = append(pids, os.Getpid())
	}
	return pids, err
}

// Kill kills processes and waits until they are gone. It returns an error if the deadline passes first. Processes
// that are already gone are skipped.
func Kill(pids []int, deadline time.Time) error {
	var killed []Process
	for _, pid := range pids {
		if p, ok := Get(pid); ok {
			_ = unix.Kill(pid, unix.SIGKILL) // ESRCH: gone
			killed = append(killed, p)
		}
	}
	var err error
	for _, p := range killed {
		err = errors.Join(err, await(p, deadline))
	}
	return err
}

// Await waits until a process is gone. It returns an error if the deadline passes first.
func Await(pid int, deadline time.Time) error {
	p, ok := Get(pid)
	if !ok {
		return nil
	}
	return await(p, deadline)
}

// await waits until no process has the id, or one with a later start time has it.
func await(p Process, deadline time.Time) error {
	for {
		if now, ok := Get(p.PID); !ok || now.Starttime != p.Starttime {
			return nil
		}
		if !time.Now().Before(deadline) {
			return errors.New("a process does not end in time; is it stuck in the kernel?")
		}
		<-time.After(again)
	}
}

// BootID returns an id that differs after every start of the machine, or "" if it is unknown. Process ids and start
// times are meaningless in another boot.
func BootID() string {
	id, err := unix.Sysctl("kern.bootsessionuuid")
	if err != nil {
		return ""
	}
	return id
}
