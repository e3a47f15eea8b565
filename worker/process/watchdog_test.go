package process

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/outbid-dev/outbid/worker/confine"
	"github.com/outbid-dev/outbid/worker/proctable"
)

// watchedForTest is a worker with a watchdog, which a test pauses. It starts processes below the subreaper if the line
// "below" is sent to it, and else without. The line "renew" renews its lease, which is short.
func watchedForTest(dir string) {
	const lease = 3 * time.Second
	h, err := Open(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		fmt.Println("error", err)
		return
	}
	c, err := confine.Open(context.Background(), confine.Config{Dir: dir, Worker: h.Token(), NoGroups: true})
	if err != nil {
		fmt.Println("error", err)
		return
	}
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		command := Command{
			Argv: []string{"sh", "-c", "sleep 600 & echo pid $!; setsid sleep 600 & echo pid $!; echo pid $$; echo all; wait"},
			Env:  os.Environ(), Output: func(_ Stream, line []byte) { fmt.Println(string(line)) },
		}
		switch in.Text() {
		case "renew":
			h.Renew(time.Now().Add(lease))
			fmt.Println("bites", h.Bites())
			continue
		case "below":
			command.Argv = []string{"sh", "-c", daemonize + "; echo pid $$; echo all; exec sleep 600"}
			command.Env = append(command.Env, "LOCK="+dir+"/held")
			command.In, err = c.New(context.Background(), confine.Limits{})
		}
		if err == nil {
			_, err = h.Start(command)
		}
		if err != nil {
			fmt.Println("error", err)
			return
		}
	}
}

// watched is such a worker.
type watched struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines chan string
	in    *os.File
}

func startWatched(t *testing.T) *watched {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("this system has no watchdogs")
	}
	r, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out, theirs, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	w := &watched{t: t, cmd: exec.Command(os.Args[0]), lines: make(chan string, 1000), in: in}
	w.cmd.Env = append(os.Environ(), "PROCESS_TEST_WATCHED="+t.TempDir())
	w.cmd.Stdin, w.cmd.Stdout, w.cmd.Stderr = r, theirs, os.Stderr
	if err := w.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	closeAll([]*os.File{r, theirs})
	var reader sync.WaitGroup
	reader.Go(func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			w.lines <- lines.Text()
		}
	})
	t.Cleanup(func() {
		_ = w.cmd.Process.Kill() // gone already, if it fails
		_ = w.cmd.Wait()         // an error, because it was killed
		reader.Wait()
		closeAll([]*os.File{in, out})
	})
	return w
}

func (w *watched) say(line string) {
	w.t.Helper()
	if _, err := w.in.WriteString(line + "\n"); err != nil {
		w.t.Fatal(err)
	}
}

func (w *watched) signal(s syscall.Signal) {
	w.t.Helper()
	if err := w.cmd.Process.Signal(s); err != nil {
		w.t.Fatal(err)
	}
}

// await returns the lines up to one that starts with a prefix.
func (w *watched) await(prefix string) (lines []string) {
	w.t.Helper()
	timeout := time.After(patience)
	for {
		select {
		case line := <-w.lines:
			if lines = append(lines, line); strings.HasPrefix(line, prefix) {
				return lines
			}
		case <-timeout:
			w.t.Fatalf("no line %q after %q", prefix, lines)
		}
	}
}

// started starts processes and returns their ids.
func (w *watched) started(how string) (pids []int) {
	w.t.Helper()
	w.say(how)
	lines := w.await("all")
	if how == "below" && !slices.ContainsFunc(lines, func(line string) bool { return strings.HasPrefix(line, "daemon") }) {
		lines = append(lines, w.await("daemon")...)
	}
	for _, line := range lines {
		if _, text, ok := strings.Cut(line, " "); ok {
			pid, err := strconv.Atoi(text)
			if err != nil {
				w.t.Fatalf("%q: %v", line, err)
			}
			pids = append(pids, pid)
		}
	}
	return pids
}

// renew renews the lease, and returns how often the watchdog has ended processes.
func (w *watched) renew() string {
	w.t.Helper()
	w.say("renew")
	lines := w.await("bites")
	return lines[len(lines)-1]
}

// A worker that is paused loses its processes, also those that left their group, when its lease ends. When it continues, it
// knows why, and the processes that it starts with a new lease live.
func TestThePausedWorkersProcessesEnd(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"plain", "below"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			w := startWatched(t)
			w.renew()
			pids := w.started(how)
			if got := w.renew(); got != "bites 0" {
				t.Fatalf("before the pause: %s", got)
			}
			w.signal(syscall.SIGSTOP)
			for _, pid := range pids {
				awaitGone(t, pid)
			}
			w.signal(syscall.SIGCONT)
			if got := w.renew(); got != "bites 1" {
				t.Errorf("after the pause: %s", got)
			}
			again := w.started(how)
			for _, pid := range again {
				if !alive(pid) {
					t.Errorf("pid %d ended within its lease", pid)
				}
			}
			w.signal(syscall.SIGKILL)
			for _, pid := range again { // no other worker has to start for that
				awaitGone(t, pid)
			}
		})
	}
}

// Another watchdog follows one that was killed.
func TestAKilledWatchdogIsReplaced(t *testing.T) {
	t.Parallel()
	w := startWatched(t)
	w.renew()
	pids := w.started("plain")
	first := w.awaitWatchdog(0)
	if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	w.awaitWatchdog(first)
	w.signal(syscall.SIGSTOP)
	for _, pid := range pids {
		awaitGone(t, pid)
	}
}

// awaitWatchdog returns the id of a watchdog of the worker other than one.
func (w *watched) awaitWatchdog(other int) int {
	w.t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		w.renew()
		pids, err := proctable.Find(func(p proctable.Process) bool {
			name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.PID))
			return p.PPID == w.cmd.Process.Pid && p.PID != other && strings.HasPrefix(string(name), watchdogName)
		})
		if err != nil {
			w.t.Fatal(err)
		}
		if len(pids) == 1 {
			return pids[0]
		}
	}
	w.t.Fatal("no watchdog")
	return 0
}
