package process

import (
	"errors"
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
	"time"

	"github.com/prometheus/procfs"
	"go.uber.org/goleak"

	"github.com/outbid-dev/outbid/worker/subreaper"
	"github.com/outbid-dev/outbid/worker/subreaper/subreapertest"
)

const patience = 30 * time.Second

func TestMain(m *testing.M) {
	if subreaper.Main() {
		return
	}
	if dir := os.Getenv("PROCESS_TEST_WATCHED"); dir != "" || os.Args[0] == watchdogName {
		if !WatchdogMain() {
			watchedForTest(dir)
		}
		return
	}
	if dir := os.Getenv("PROCESS_TEST_HOST_BELOW"); dir != "" {
		hostOfDaemon(dir)
		return
	}
	if dir := os.Getenv("PROCESS_TEST_HOST"); dir != "" {
		hostForTest(dir)
		return
	}
	goleak.VerifyTestMain(m)
}

// hostForTest is a worker that a test kills: it starts a group of two processes and one process that leaves the
// group.
func hostForTest(dir string) {
	h, err := Open(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		fmt.Println("error", err)
		return
	}
	_, err = h.Start(Command{
		Argv: []string{"sh", "-c", "sleep 600 & echo pid $!; setsid sleep 600 & echo pid $!; echo pid $$; echo all; wait"},
		Env:  os.Environ(), Output: func(_ Stream, line []byte) { fmt.Println(string(line)) },
	})
	if err != nil {
		fmt.Println("error", err)
	}
	select {}
}

func open(t *testing.T) *Host {
	t.Helper()
	h, err := Open(t.TempDir(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

// printed collects lines and lets a test wait for one.
type printed struct {
	mu    sync.Mutex
	lines []string
	wake  chan struct{}
}

func newPrinted() *printed { return &printed{wake: make(chan struct{}, 1)} }

func (p *printed) add(stream Stream, line []byte) {
	p.mu.Lock()
	p.lines = append(p.lines, string(stream)+": "+string(line))
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

func (p *printed) all() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.lines...)
}

func (p *printed) await(t *testing.T, prefix string) string {
	t.Helper()
	deadline := time.After(patience)
	for {
		for _, line := range p.all() {
			if strings.HasPrefix(line, prefix) {
				return strings.TrimPrefix(line, prefix)
			}
		}
		select {
		case <-p.wake:
		case <-deadline:
			t.Fatalf("no line %q in %q", prefix, p.all())
		}
	}
}

func start(t *testing.T, h *Host, script string) (*Process, *printed) {
	t.Helper()
	out := newPrinted()
	p, err := h.Start(Command{Argv: []string{"sh", "-c", script}, Env: os.Environ(), In: subreapertest.Inside(t), Output: out.add})
	if err != nil {
		t.Fatal(err)
	}
	return p, out
}

func awaitDone(t *testing.T, p *Process) Outcome {
	t.Helper()
	select {
	case <-p.Done():
		return p.Outcome()
	case <-time.After(patience):
		t.Fatal("process does not end")
		return Outcome{}
	}
}

func TestOutcome(t *testing.T) {
	t.Parallel()
	h := open(t)
	for script, want := range map[string]string{
		"exit 0":      "exited with code 0",
		"exit 3":      "exited with code 3",
		"kill -9 $$":  "killed by signal 9: perhaps out of memory",
		"kill -11 $$": "killed by signal 11 (segmentation fault)",
	} {
		p, _ := start(t, h, script)
		o := awaitDone(t, p)
		if !strings.HasPrefix(o.String(), want) || o.OK() != (script == "exit 0") || o.Asked {
			t.Errorf("%s: %+v %q, want %q", script, o, o, want)
		}
	}
}

func TestOutput(t *testing.T) {
	t.Parallel()
	h := open(t)
	p, out := start(t, h, `echo one; echo two >&2; printf three`)
	awaitDone(t, p)
	got := strings.Join(out.all(), "|")
	for _, want := range []string{"stdout: one", "stderr: two", "stdout: three"} {
		if !strings.Contains(got, want) {
			t.Errorf("printed %q, want %q", got, want)
		}
	}
}

func TestLongLine(t *testing.T) {
	t.Parallel()
	h := open(t)
	p, out := start(t, h, `head -c 200000 /dev/zero | tr '\0' x; echo; echo end`)
	awaitDone(t, p)
	total := 0
	for _, line := range out.all() {
		if len(line) > MaxLine+len("stdout: ") {
			t.Errorf("a piece of %d bytes", len(line))
		}
		total += strings.Count(line, "x")
	}
	if total != 200000 {
		t.Errorf("%d bytes came", total)
	}
	out.await(t, "stdout: end")
}

func TestStopAsksFirst(t *testing.T) {
	t.Parallel()
	h := open(t)
	p, out := start(t, h, `trap 'echo bye; exit 7' TERM; echo ready; while :; do sleep 0.01; done`)
	out.await(t, "stdout: ready")
	p.Stop(patience)
	if o := awaitDone(t, p); o.Code != 7 || !o.Asked {
		t.Errorf("outcome %+v", o)
	}
	out.await(t, "stdout: bye")
}

func TestStopKillsAfterGrace(t *testing.T) {
	t.Parallel()
	h := open(t)
	p, out := start(t, h, `trap '' TERM; echo ready; while :; do sleep 0.01; done`)
	out.await(t, "stdout: ready")
	p.Stop(time.Millisecond)
	if o := awaitDone(t, p); o.Signal != syscall.SIGKILL || strings.Contains(o.String(), "memory") {
		t.Errorf("outcome %v", o)
	}
}

// alive reports whether a process runs; a zombie does not.
func alive(pid int) bool {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return false
	}
	stat, err := p.Stat()
	return err == nil && stat.State != "Z" && stat.State != "X"
}

// awaitGone waits for a process that is not our child.
func awaitGone(t *testing.T, pid int) {
	t.Helper()
	if err := endWithin(pid); err != nil {
		t.Errorf("pid %d: %v", pid, err)
	}
}

func endWithin(pid int) error {
	deadline := time.Now().Add(patience)
	for alive(pid) {
		if time.Now().After(deadline) {
			return errors.New("still there")
		}
		if err := exec.Command("true").Run(); err != nil { // lets others run
			return err
		}
	}
	return nil
}

func TestNoChildSurvives(t *testing.T) {
	t.Parallel()
	h := open(t)
	p, out := start(t, h, `sleep 600 >/dev/null 2>&1 & echo child $!; exit 0`)
	awaitDone(t, p)
	child, err := strconv.Atoi(out.await(t, "stdout: child "))
	if err != nil {
		t.Fatal(err)
	}
	awaitGone(t, child)
}

func TestCloseKills(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	h, err := Open(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	p, out := start(t, h, `echo ready; exec sleep 600`)
	out.await(t, "stdout: ready")
	if _, err := Open(dir, slog.New(slog.DiscardHandler)); !errors.Is(err, ErrInUse) {
		t.Errorf("second worker in the same directory: %v", err)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	if o := awaitDone(t, p); o.Signal != syscall.SIGKILL {
		t.Errorf("outcome %v", o)
	}
	if _, err := h.Start(Command{Argv: []string{"true"}, Env: os.Environ()}); err == nil {
		t.Error("started after Close")
	}
}

func TestStartErrors(t *testing.T) {
	t.Parallel()
	h := open(t)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "plain"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		c    Command
		want string
	}{
		"nothing":        {Command{}, "no program given"},
		"missing":        {Command{Argv: []string{"no-such-program"}}, `program "no-such-program" is not in the PATH`},
		"missing path":   {Command{Argv: []string{"./train"}, Dir: dir}, `program "./train": does not exist on this node`},
		"not executable": {Command{Argv: []string{"./plain"}, Dir: dir}, "is not executable"},
		"directory":      {Command{Argv: []string{dir}}, "is a directory"},
		"no workdir":     {Command{Argv: []string{"true"}, Dir: dir + "/none"}, "does not exist on this node"},
	} {
		tc.c.Env = os.Environ()
		_, err := h.Start(tc.c)
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}

func TestDirAndEnv(t *testing.T) {
	t.Parallel()
	h := open(t)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "tool"), []byte("#!/bin/sh\necho $WORD $PWD\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, argv := range [][]string{{"./tool"}, {"tool"}} {
		out := newPrinted()
		p, err := h.Start(Command{
			Argv: argv, Dir: dir, In: subreapertest.Inside(t), Output: out.add, Env: []string{"WORD=a", "PATH=/bin", "PATH=" + dir, "WORD=b"},
		})
		if err != nil {
			t.Fatal(err)
		}
		awaitDone(t, p)
		out.await(t, "stdout: b "+dir)
	}
}

// A slowed process gets about its part of the time. Measuring that against a process at full speed would depend on
// the machine's load, so this only tests that the process runs, pauses, and can be stopped while it pauses.
func TestSpeed(t *testing.T) {
	t.Parallel()
	h := open(t)
	p, out := start(t, h, `trap 'exit 9' TERM; i=0; while :; do i=$((i+1)); echo $i; sleep 0.001; done`)
	p.SetSpeed(0.2)
	out.await(t, "stdout: 20")
	awaitState(t, p.PID(), "T")
	p.SetSpeed(0.3)
	awaitState(t, p.PID(), "T")
	p.SetSpeed(1)
	p.SetSpeed(0.01)
	p.Stop(patience)
	if o := awaitDone(t, p); o.Code != 9 {
		t.Errorf("outcome %v", o)
	}
}

func awaitState(t *testing.T, pid int, want string) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for time.Now().Before(deadline) {
		p, err := procfs.NewProc(pid)
		if err != nil {
			t.Fatal(err)
		}
		if stat, err := p.Stat(); err == nil && stat.State == want {
			return
		}
	}
	t.Errorf("process is never in state %s", want)
}
