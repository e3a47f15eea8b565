package confine

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// idlePatience is how long processes in an idle group only use idle CPUs. Any other process that wakes up then
// preempts them at once, which no CPU share achieves, however small. But on a machine that is always busy they only
// get a third of a percent of the CPUs, and a trial's forks wait for their average. So after this time without
// progress, the group gets an ordinary share for as long.
const idlePatience = 3 * time.Second

// starvedBelow is the part of the time that runnable threads run, below which they count as starved.
const starvedBelow = 0.1

// makeIdleGroup creates an idle group. It returns "" if the kernel does not support idle groups (before Linux 5.15).
func makeIdleGroup(dir string) (string, error) {
	if err := os.Mkdir(dir, 0o755); err != nil { //nolint:gosec // as the kernel creates them
		return "", err
	}
	if _, err := os.Stat(filepath.Join(dir, "cpu.idle")); err != nil {
		return "", removeGroups(dir)
	}
	return dir, nil
}

func writeIn(dir, file, text string) error {
	return os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644) //nolint:gosec // a file of the kernel
}

// EnterIdleGroup moves this process into an idle group (Confiner.IdleGroup). It should be called once, because while
// a process enters a group, the kernel delays the start and end of all processes and threads on the machine. The
// process enters by itself: if it were started inside, the starting thread could be held up in the group, and with it
// all further starts of processes. The starter calls WatchStarvation.
func EnterIdleGroup(dir string) error {
	makeIdle(dir)
	return writeIn(dir, "cgroup.procs", "0")
}

// WatchStarvation gives a process that starves in an idle group a share of the CPUs for some time, until stop. The
// process cannot do that itself while it does not run.
func WatchStarvation(dir string, pid int) (stop func()) {
	return watchStarvation(dir, pid, idlePatience)
}

func watchStarvation(dir string, pid int, patience time.Duration) (stop func()) {
	w := &starvationWatch{dir: dir, pid: pid, patience: patience, waiting: waited(pid)}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer = time.AfterFunc(patience, w.tick)
	return w.stop
}

// starvationWatch watches a process in an idle group.
type starvationWatch struct {
	dir      string
	pid      int
	patience time.Duration

	mu      sync.Mutex
	timer   *time.Timer
	stopped bool
	shares  bool // the group has an ordinary share
	waiting waiting
}

// tick ends a period of patience or of an ordinary share, and starts the next one.
func (w *starvationWatch) tick() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped {
		return
	}
	before := w.waiting
	w.waiting = waited(w.pid)
	switch {
	case w.shares:
		w.shares = writeIn(w.dir, "cpu.idle", "1") != nil // on failure it keeps its share
	case w.waiting.starved(before):
		w.shares = endIdle(w.dir) == nil
	}
	w.timer.Reset(w.patience)
}

// stop ends the watch. The group is idle again for the process's next work.
func (w *starvationWatch) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	w.timer.Stop()
	if w.shares {
		w.shares = writeIn(w.dir, "cpu.idle", "1") != nil
	}
}

// waiting is what the kernel counts for all threads of a process: how long they ran, how long they waited for a CPU
// before they ran, and whether a thread is runnable now.
type waiting struct {
	ran, waited time.Duration
	ready       bool
}

// waited returns the counts so far, or zero if the kernel does not count them.
func waited(pid int) (w waiting) {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid)) // the pattern is valid
	for _, thread := range threads {
		text, err := os.ReadFile(filepath.Join(thread, "schedstat"))
		var ran, waited time.Duration
		if err != nil { // it has ended
			continue
		}
		if _, err := fmt.Sscan(string(text), &ran, &waited); err == nil {
			w.ran, w.waited = w.ran+ran, w.waited+waited
			w.ready = w.ready || ready(thread)
		}
	}
	return w
}

// ready reports whether a thread is runnable or runs.
func ready(thread string) bool {
	text, err := os.ReadFile(filepath.Join(thread, "stat"))
	end := bytes.LastIndexByte(text, ')') // end of the name, which may contain anything
	return err == nil && end >= 0 && bytes.HasPrefix(text[end:], []byte(") R"))
}

// starved reports whether the process has starved since before, or whether that is unknown. Waits that are not over
// yet are not counted.
func (w waiting) starved(before waiting) bool {
	ran, waited := w.ran-before.ran, w.waited-before.waited
	return w == waiting{} || float64(ran) < starvedBelow*float64(ran+waited) || ran == 0 && w.ready
}

// makeIdle makes a group idle. A group with other processes is not changed, because they may have waited long enough.
func makeIdle(dir string) {
	if others, err := pidsIn(dir); err == nil && len(others) == 0 {
		_ = writeIn(dir, "cpu.idle", "1") // on failure it keeps its share
	}
}

// endIdle gives the group an ordinary share.
func endIdle(dir string) error { return writeIn(dir, "cpu.idle", "0") }
