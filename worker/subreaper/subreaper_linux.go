package subreaper

import (
	"encoding/gob"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// EndNow is the signal that tells a subreaper to end everything below it, although its worker lives.
const EndNow = unix.SIGUSR1

// name is the name (argv[0]) of a subreaper, which Main recognises.
const name = "outbid-subreaper"

// ready is set once Main was called, so that this program can be started again as a subreaper.
var ready atomic.Bool //nolint:gochecknoglobals // a property of the program

// Main must be called first in the main function of a program that calls Wrap. In a subreaper it returns true when
// the process should exit. Otherwise it returns false.
func Main() bool {
	if os.Args[0] == name {
		serve()
		return true
	}
	ready.Store(true)
	return false
}

// Ready reports whether Main was called.
func Ready() bool { return ready.Load() }

// order describes the command that the subreaper has to start.
type order struct {
	Path      string
	Argv, Env []string
}

// word is a message of the subreaper: that it has started the command or why not, that the command has ended, and
// finally how, when all its descendants are gone.
type word struct {
	PID     int
	Errno   syscall.Errno
	Error   string
	Status  syscall.WaitStatus
	Maxrss  int64
	Remains []int
}

// Child is a command below a subreaper.
type Child struct {
	// Reaper is the subreaper, which Start starts.
	Reaper *exec.Cmd
	order  order
	theirs *os.File
	conn   *os.File
	words  *gob.Decoder
	pid    int
}

// Wrap creates a subreaper for a command. It uses only the command's path, arguments, environment, directory, stdout
// and stderr. The command gets its own process group.
func Wrap(cmd *exec.Cmd) (*Child, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = unix.SetNonblock(fds[0], true)
	}
	if err != nil {
		return nil, fmt.Errorf("create a socket for a subreaper: %w", err)
	}
	c := &Child{
		conn: os.NewFile(uintptr(fds[0]), "subreaper"), theirs: os.NewFile(uintptr(fds[1]), "worker"),
		order: order{Path: cmd.Path, Argv: cmd.Args, Env: cmd.Env},
	}
	c.words = gob.NewDecoder(c.conn)
	c.Reaper = &exec.Cmd{
		Path: "/proc/self/exe", Args: []string{name}, Dir: cmd.Dir, Env: []string{}, Stdout: cmd.Stdout, Stderr: cmd.Stderr,
		ExtraFiles: []*os.File{c.theirs}, SysProcAttr: &syscall.SysProcAttr{Setpgid: true},
	}
	return c, nil
}

// Start starts the subreaper and the command. Its errors are those of exec.Cmd.
func (c *Child) Start() error {
	err := c.Reaper.Start()
	_ = c.theirs.Close() // the subreaper has it
	if err != nil {
		if at := new(fs.PathError); errors.As(err, &at) && at.Path == c.Reaper.Path {
			at.Path, _ = os.Executable() // a path that users know
		}
		return errors.Join(err, c.conn.Close())
	}
	if err = gob.NewEncoder(c.conn).Encode(c.order); err == nil {
		c.pid, err = c.started()
	}
	if err != nil {
		_ = c.conn.Close()
		_ = c.Reaper.Wait() // it has reported the error
	}
	return err
}

func (c *Child) started() (int, error) {
	var w word
	switch err := c.words.Decode(&w); {
	case err != nil:
		return 0, fmt.Errorf("the subreaper has ended: %w", err)
	case w.Errno != 0:
		return 0, &fs.PathError{Op: "fork/exec", Path: c.order.Path, Err: w.Errno}
	case w.Error != "":
		return 0, errors.New(w.Error)
	}
	return w.PID, nil
}

// Close releases a command that was not started.
func (c *Child) Close() { _, _ = c.theirs.Close(), c.conn.Close() }

// PID returns the id of the command, which leads a process group.
func (c *Child) PID() int { return c.pid }

// Await returns when the command has ended. Its process id stays reserved until Reap is called. An error means that
// the subreaper is gone, and the command with it; descendants of the command may still run.
func (c *Child) Await() error {
	var w word
	return c.words.Decode(&w)
}

// Reap ends all descendants of the command and returns how the command ended, when all are gone. remains has the ids
// of processes that it could not end.
func (c *Child) Reap() (status syscall.WaitStatus, maxrss int64, remains []int, err error) {
	var w word
	if err = gob.NewEncoder(c.conn).Encode(word{}); err == nil {
		err = c.words.Decode(&w)
	}
	err = errors.Join(err, c.conn.Close())
	if ended := c.Reaper.Wait(); err != nil {
		err = fmt.Errorf("the subreaper of a trial has ended early: %w", errors.Join(err, ended))
	}
	return w.Status, w.Maxrss, w.Remains, err
}
