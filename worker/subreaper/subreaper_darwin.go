package subreaper

import (
	"errors"
	"os/exec"
	"syscall"
)

// errNone is returned by all operations, because this system does not have subreapers.
var errNone = errors.New("this system does not have subreapers")

// Main returns false, because a program is never a subreaper here.
func Main() bool { return false }

// Ready returns false.
func Ready() bool { return false }

// Child is a command below a subreaper. It is never created here.
type Child struct{ Reaper *exec.Cmd }

// Wrap returns an error.
func Wrap(*exec.Cmd) (*Child, error) { return nil, errNone }

// Start returns an error.
func (*Child) Start() error { return errNone }

// Close does nothing.
func (*Child) Close() {}

// PID returns 0.
func (*Child) PID() int { return 0 }

// Await returns an error.
func (*Child) Await() error { return errNone }

// Reap returns an error.
func (*Child) Reap() (syscall.WaitStatus, int64, []int, error) { return 0, 0, nil, errNone }
