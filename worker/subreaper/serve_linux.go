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

// serve runs the subreaper, which reports to the worker over the socket.
func serve() {
	runtime.LockOSThread() // the command dies with the thread that starts it
	unix.CloseOnExec(connection)
	conn := os.NewFile(connection, "worker")
	children := make(chan os.Signal, 1)
	signal.Notify(children, unix.SIGCHLD)
	// A signal to stop the worker may go to all of its processes (as systemd does), and trials have to save first, so
	// the subreaper must end after the command. SIGTERM is caught and dropped instead of ignored, because the command
	// would inherit that.
	signal.Notify(make(chan os.Signal, 1), unix.SIGTERM)
	now := make(chan os.Signal, 1)
	signal.Notify(now, EndNow)
	say := gob.NewEncoder(conn)
	words := gob.NewDecoder(conn)
	var o order
	if err := words.Decode(&o); err != nil {
		return
	}
	pid, err := start(o)
	if err != nil {
		_ = say.Encode(because(err)) // fails only if the worker is gone
		return
	}
	_ = say.Encode(word{PID: pid})
	answered, over := make(chan struct{}), make(chan struct{})
	go func() { // returns with the process
		var w word
		_ = words.Decode(&w) // the worker has recorded the end, or is gone
		close(answered)
	}()
	go func() { // as above
		select {
		case <-answered:
		case <-now:
		}
		close(over)
	}()
	if awaitCommand(pid, children, over) {
		_ = say.Encode(word{PID: pid})
		<-over
	}
	_ = say.Encode(endAll(pid, children))
}

// start starts the command, after it has made this process the parent of the command's orphans.
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

// awaitCommand reaps orphans until the command has ended, which it does not reap. It returns false if the worker is
// gone first.
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

// ended returns a child that has ended, without reaping it, or 0.
func ended() int {
	// siginfo is the beginning of the kernel's siginfo_t for SIGCHLD, because x/sys/unix does not export the pid.
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

// endAll kills the command's group and then all children until none is left: the children of killed processes become
// children of this process. It returns how the command ended.
func endAll(pid int, children <-chan os.Signal) (w word) {
	_ = unix.Kill(-pid, unix.SIGKILL) // not reaped yet, so no other process has this id
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
			_ = unix.Kill(child, unix.SIGKILL) // only this process reaps it, so no other process has this id
		}
		select {
		case <-children:
		case <-time.After(10 * time.Millisecond): // the kernel does not notify about new children
		}
	}
}

// reap reaps the children that have ended, and reports whether no child is left.
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
