package subreaper

import (
	"encoding/gob"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/outbid-dev/outbid/worker/proctable"
)

// connection is the file descriptor of the socket to the worker.
const connection = 3

// serve is the subreaper. The worker hears everything over the socket.
func serve() {
	runtime.LockOSThread() // the command dies with the thread that starts it
	unix.CloseOnExec(connection)
	conn := os.NewFile(connection, "worker")
	children := make(chan os.Signal, 1)
	signal.Notify(children, unix.SIGCHLD)
	// Who stops the worker may tell every process of it (systemd does), and trials are to save first: the subreaper ends
	// after the command. Ignored signals would be ignored by the command too, so they are taken and dropped.
	signal.Notify(make(chan os.Signal, 1), unix.SIGTERM)
	say := gob.NewEncoder(conn)
	words := gob.NewDecoder(conn)
	var o order
	if err := words.Decode(&o); err != nil {
		return
	}
	pid, err := start(o)
	if err != nil {
		_ = say.Encode(because(err)) // if the worker is gone nobody listens
		return
	}
	_ = say.Encode(word{PID: pid})
	over := make(chan struct{})
	go func() { // returns with the process
		var w word
		_ = words.Decode(&w) // the worker has taken note of the end, or is gone
		close(over)
	}()
	if awaitCommand(pid, children, over) {
		_ = say.Encode(word{PID: pid})
		<-over
	}
	_ = say.Encode(endAll(pid, children))
}

// start starts the command, whose orphans come here.
func start(o order) (int, error) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return 0, err
	}
	cmd := &exec.Cmd{
		Path: o.Path, Args: o.Argv, Env: o.Env, Stdout: os.Stdout, Stderr: os.Stderr,
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL},
	}
	if o.Env == nil {
		cmd.Env = []string{}
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	return cmd.Process.Pid, nil
}

func because(err error) word {
	w := word{Error: err.Error()}
	_ = errors.As(err, &w.Errno)
	return w
}

// awaitCommand reaps the orphans that end until the command has ended, which is left to be reaped. It returns false if
// the worker is gone before.
func awaitCommand(pid int, children <-chan os.Signal, over <-chan struct{}) bool {
	for {
		select {
		case <-children:
		case <-over:
			return false
		}
		for child := ended(); child != 0; child = ended() {
			if child == pid {
				return true
			}
			_, _ = unix.Wait4(child, nil, unix.WNOHANG, nil)
		}
	}
}

// ended returns a child that has ended and leaves it to be reaped; 0 if there is none.
func ended() int {
	// siginfo is the beginning of the kernel's siginfo_t for SIGCHLD: x/sys/unix does not name the process id.
	type siginfo struct {
		number, errno, code, _ int32
		pid                    int32
	}
	for {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOWAIT|unix.WNOHANG, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return 0
		}
		return int((*siginfo)(unsafe.Pointer(&info)).pid)
	}
}

// endAll kills the command's group and then children until there are none: the children of those that die come here.
// It says how the command ended.
func endAll(pid int, children <-chan os.Signal) (w word) {
	_ = unix.Kill(-pid, unix.SIGKILL) // not reaped yet: the number is its own
	deadline := time.Now().Add(proctable.Timeout)
	for {
		if none := reap(pid, &w); none {
			return w
		}
		left := live()
		if time.Now().After(deadline) {
			w.Remains = left
			return w
		}
		for _, child := range left {
			_ = unix.Kill(child, unix.SIGKILL) // nobody else reaps it: the number is its own
		}
		select {
		case <-children:
		case <-time.After(10 * time.Millisecond): // a new child came, of which the kernel says nothing
		}
	}
}

// reap reaps the children that have ended; none says that no child is left at all.
func reap(command int, w *word) (none bool) {
	for {
		var status unix.WaitStatus
		var usage unix.Rusage
		pid, err := unix.Wait4(-1, &status, unix.WNOHANG, &usage)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return errors.Is(err, unix.ECHILD)
		case pid == 0:
			return false
		case pid == command:
			w.Status, w.Maxrss = syscall.WaitStatus(status), usage.Maxrss
		}
	}
}

// live lists the children that run.
func live() []int {
	pids, _ := proctable.Find(func(p proctable.Process) bool { return p.PPID == os.Getpid() })
	return pids
}
