package process

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/outbid-dev/outbid/worker/confine"
	"github.com/outbid-dev/outbid/worker/subreaper/subreapertest"
)

// Exit codes, signals, output, stops and grace are the same with a subreaper.
func TestTheSameBelowASubreaper(t *testing.T) {
	t.Parallel()
	subreapertest.Again(t, "^Test(Outcome|Output|LongLine|Stop.*|NoChild.*|CloseKills|DirAndEnv|Speed)$")
}

// daemonize leaves a process in another session, forked twice, without an environment, that holds a lock.
const daemonize = `exec 9>"$LOCK"; flock 9; (setsid env -i sh -c 'echo daemon $$; exec sleep 600 >/dev/null 2>&1' &)`

func locked(t *testing.T, path string) bool {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll([]*os.File{f})
	return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil
}

// A daemon that cannot be recognised by its group, session or environment is gone once its trial is done, and so is
// its lock.
func TestDaemonsWithoutATraceEnd(t *testing.T) {
	t.Parallel()
	for how, end := range map[string]func(p *Process){
		"by itself": func(p *Process) { _ = syscall.Kill(p.PID(), syscall.SIGUSR1) },
		"killed":    func(p *Process) { p.Kill() },
		"stopped":   func(p *Process) { p.Stop(patience) },
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			h, out, lock := open(t), newPrinted(), filepath.Join(t.TempDir(), "lock")
			p, err := h.Start(Command{
				Argv: []string{"sh", "-c", "trap 'exit 5' USR1; " + daemonize + "; while :; do sleep 0.01; done"},
				Env:  append(os.Environ(), "LOCK="+lock), In: subreapertest.Ungrouped(t), Output: out.add,
			})
			if err != nil {
				t.Fatal(err)
			}
			pid, err := strconv.Atoi(out.await(t, "stdout: daemon "))
			if err != nil {
				t.Fatal(err)
			}
			checkTraceless(t, pid, p.PID())
			if !locked(t, lock) {
				t.Error("there is no lock, so there is nothing to test")
			}
			end(p)
			if o := awaitDone(t, p); how == "by itself" && (o.Code != 5 || o.PeakBytes == 0) {
				t.Errorf("outcome %+v", o)
			}
			if alive(pid) || locked(t, lock) {
				t.Errorf("the daemon %d outlived its trial", pid)
			}
		})
	}
}

func checkTraceless(t *testing.T, pid, group int) {
	t.Helper()
	p, err := procfs.NewProc(pid)
	if err != nil {
		t.Fatal(err)
	}
	stat, err := p.Stat()
	if err != nil {
		t.Fatal(err)
	}
	if env, _ := p.Environ(); stat.Session == group || stat.PGRP == group || strings.Contains(fmt.Sprint(env), "OUTBID") {
		t.Errorf("the daemon can be recognised by its group %d, its session %d or %q", stat.PGRP, stat.Session, env)
	}
}

// hostOfDaemon is a worker that a test kills.
func hostOfDaemon(dir string) {
	h, err := Open(dir, slog.New(slog.DiscardHandler))
	if err == nil {
		var c *confine.Confiner
		var in *confine.Confinement
		if c, err = confine.Open(context.Background(), confine.Config{Dir: dir, NoGroups: true}); err == nil {
			in, err = c.New(context.Background(), confine.Limits{})
		}
		if err == nil {
			_, err = h.Start(Command{
				Argv: []string{"sh", "-c", daemonize + "; exec sleep 600"}, Env: append(os.Environ(), "LOCK="+dir+"/held"), In: in,
				Output: func(_ Stream, line []byte) { fmt.Println(string(line)) },
			})
		}
	}
	if err != nil {
		fmt.Println("error", err)
	}
	select {}
}

// When the worker is killed, the subreaper ends everything, and the next worker in the directory waits for that.
func TestTracelessDaemonsEndWithTheirWorker(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	worker := exec.Command(os.Args[0])
	worker.Env = append(os.Environ(), "PROCESS_TEST_HOST_BELOW="+dir)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	worker.Stdout, worker.Stderr = w, os.Stderr
	if err := worker.Start(); err != nil {
		t.Fatal(err)
	}
	closeAll([]*os.File{w})
	out := newPrinted()
	var reader sync.WaitGroup
	reader.Go(func() { readLines(r, Stdout, nil, out.add) })
	pid, err := strconv.Atoi(out.await(t, "stdout: daemon "))
	if err != nil {
		t.Fatal(err)
	}
	if err := worker.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = worker.Wait() // an error, because it was killed
	h, err := Open(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if alive(pid) || locked(t, dir+"/held") {
		t.Error("the daemon outlived its worker")
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	reader.Wait()
	closeAll([]*os.File{r})
}

// A trial that kills its own subreaper ends.
func TestASubreaperThatIsKilled(t *testing.T) {
	t.Parallel()
	h, out, dir := open(t), newPrinted(), t.TempDir()
	p, err := h.Start(Command{
		// Not before the subreaper has reported that it runs: before that, Start would fail.
		Argv: []string{"sh", "-c", "sleep 600 & echo child $!; until [ -e started ]; do sleep 0.01; done; kill -9 $PPID; exec sleep 600"},
		Dir:  dir, Env: os.Environ(), In: subreapertest.Ungrouped(t),
		Output: out.add,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "started"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if o := awaitDone(t, p); o.OK() || o.Signal != syscall.SIGKILL {
		t.Errorf("outcome %+v", o)
	}
	child, err := strconv.Atoi(out.await(t, "stdout: child "))
	if err != nil || alive(child) || alive(p.PID()) {
		t.Errorf("something is left: %v", err)
	}
}

// A SIGTERM to all processes of the worker does not end the subreaper, so that trials can still save and end.
func TestASubreaperOutlastsItsCommand(t *testing.T) {
	t.Parallel()
	h, out := open(t), newPrinted()
	p, err := h.Start(Command{
		Argv: []string{"sh", "-c", "trap 'echo term' TERM; kill -TERM $PPID $$; sleep 0.1; echo saved; exit 4"}, Env: os.Environ(),
		In: subreapertest.Ungrouped(t), Output: out.add,
	})
	if err != nil {
		t.Fatal(err)
	}
	out.await(t, "stdout: saved")
	if o := awaitDone(t, p); o.Code != 4 {
		t.Errorf("outcome %+v", o)
	}
}

// A program that cannot be started gives the same error with a subreaper.
func TestWhatASubreaperCannotStart(t *testing.T) {
	t.Parallel()
	h, dir := open(t), t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "tool"), []byte("#!/no/such/interpreter\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	c := Command{Argv: []string{"./tool"}, Dir: dir, Env: []string{"A=\xff"}}
	_, plain := h.Start(c)
	c.In = subreapertest.Ungrouped(t)
	_, below := h.Start(c)
	if plain == nil || below == nil || plain.Error() != below.Error() {
		t.Errorf("%v, want %v", below, plain)
	}
}
