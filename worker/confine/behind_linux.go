package confine

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// behindPatience is how long what is in a group behind takes only CPUs that nobody else wants: whoever else wakes up then interrupts
// it at once, which no share does, however small. But on a machine that is always busy that is a third of a percent, and a
// trial's forks stand still until their average is there: so who has waited through it has the share that every group has, for as long.
const behindPatience = 3 * time.Second

// starvedBelow is the part of its time that a thread which could go does go, below which it waits in vain.
const starvedBelow = 0.1

// makeBehind makes a group behind; none, "", where groups cannot be told to take only what nobody wants, before Linux 5.15.
func makeBehind(dir string) (string, error) {
	if err := os.Mkdir(dir, 0o755); err != nil { //nolint:gosec // as the kernel makes them
		return "", err
	}
	if _, err := os.Stat(filepath.Join(dir, "cpu.idle")); err != nil {
		return "", removeGroups(dir)
	}
	return dir, nil
}

func writeIn(dir, file, text string) error {
	return os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644) //nolint:gosec // a file of the kernel's
}

// EnterIdleGroup moves this process into a group behind, as Confiner.IdleGroup names it. Once: the kernel holds up every start and end of a process and
// of a thread on the machine while one enters a group. It enters by itself: a thread that started it inside would be held up there, and with it all that
// wait to start processes. Who started it watches it: WatchStarvation.
func EnterIdleGroup(dir string) error {
	beIdle(dir)
	return writeIn(dir, "cgroup.procs", "0")
}

// WatchStarvation gives a process that starves in a group behind a share of the CPUs for some time, until stop. That process cannot itself: who gets
// nothing does nothing either.
func WatchStarvation(dir string, pid int) (stop func()) {
	return watchStarvation(dir, pid, behindPatience)
}

func watchStarvation(dir string, pid int, patience time.Duration) (stop func()) {
	w := &starvationWatch{dir: dir, pid: pid, patience: patience, waiting: waited(pid)}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer = time.AfterFunc(patience, w.over)
	return w.stop
}

// starvationWatch watches a process in a group behind.
type starvationWatch struct {
	dir      string
	pid      int
	patience time.Duration

	mu      sync.Mutex
	timer   *time.Timer
	stopped bool
	shares  bool // it has the share of others
	waiting waiting
}

// over ends a time of patience, or one of having a share; the next begins.
func (w *starvationWatch) over() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped {
		return
	}
	before := w.waiting
	w.waiting = waited(w.pid)
	switch {
	case w.shares:
		w.shares = writeIn(w.dir, "cpu.idle", "1") != nil // else it goes on as it is
	case w.waiting.starved(before):
		w.shares = haveShare(w.dir) == nil
	}
	w.timer.Reset(w.patience)
}

// stop ends that. The next work of the process begins without a share.
func (w *starvationWatch) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	w.timer.Stop()
	if w.shares {
		w.shares = writeIn(w.dir, "cpu.idle", "1") != nil
	}
}

// waiting is what the kernel counts of all threads of a process: how long they went, how long those waited for a CPU that then went, and whether
// one could go now.
type waiting struct {
	ran, waited time.Duration
	ready       bool
}

// waited is the count so far; of a kernel that does not count it tells of nothing.
func waited(pid int) (w waiting) {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid)) // the pattern is good
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

// ready says whether a thread could go, or does.
func ready(thread string) bool {
	text, err := os.ReadFile(filepath.Join(thread, "stat"))
	end := bytes.LastIndexByte(text, ')') // of its name, which may be anything
	return err == nil && end >= 0 && bytes.HasPrefix(text[end:], []byte(") R"))
}

// starved says whether it has waited in vain since before, or cannot know. The time of a thread that still waits is not counted yet.
func (w waiting) starved(before waiting) bool {
	ran, waited := w.ran-before.ran, w.waited-before.waited
	return w == waiting{} || float64(ran) < starvedBelow*float64(ran+waited) || ran == 0 && w.ready
}

// beIdle has a group take only CPUs that nobody else wants. One that others are in is left as it is: they may have waited long
// enough.
func beIdle(dir string) {
	if others, err := pidsIn(dir); err == nil && len(others) == 0 {
		_ = writeIn(dir, "cpu.idle", "1") // else it has its share
	}
}

// haveShare ends that, whoever began it.
func haveShare(dir string) error { return writeIn(dir, "cpu.idle", "0") }
