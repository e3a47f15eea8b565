package subreaper

import (
	"errors"
	"os/exec"
	"syscall"
)

// errNone says that there are none here.
var errNone = errors.New("this system has no subreapers")

// Main returns false: no program here is a subreaper.
func Main() bool { return false }

// Ready says that there are none.
func Ready() bool { return false }

// Child is a command below a subreaper, of which there is none here.
type Child struct{ Reaper *exec.Cmd }

// Wrap is an error.
func Wrap(*exec.Cmd) (*Child, error) { return nil, errNone }

// Start is an error.
func (*Child) Start() error { return errNone }

// Close does nothing.
func (*Child) Close() {}

// PID is that of no process.
func (*Child) PID() int { return 0 }

// Await is an error.
func (*Child) Await() error { return errNone }

// Reap is an error.
func (*Child) Reap() (syscall.WaitStatus, int64, []int, error) { return 0, 0, nil, errNone }
