package confine

import (
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
// wait to start processes. Who started it is Patient with it.
func EnterIdleGroup(dir string) error {
	beIdle(dir)
	return writeIn(dir, "cgroup.procs", "0")
}

// Patient watches a process in a group behind, whose name it is given, until stop: it cannot itself, as who gets nothing does nothing either.
func Patient(dir string, pid int) (stop func()) { return patientFor(dir, pid, behindPatience) }

func patientFor(dir string, pid int, patience time.Duration) (stop func()) {
	p := &patient{dir: dir, pid: pid, patience: patience, waiting: waited(pid)}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.timer = time.AfterFunc(patience, p.over)
	return p.stop
}

// patient is who watches a process in a group behind.
type patient struct {
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
func (p *patient) over() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return
	}
	before := p.waiting
	p.waiting = waited(p.pid)
	switch {
	case p.shares:
		p.shares = writeIn(p.dir, "cpu.idle", "1") != nil // else it goes on as it is
	case p.waiting.starved(before):
		p.shares = haveShare(p.dir) == nil
	}
	p.timer.Reset(p.patience)
}

// stop ends that. The next work of the process begins without a share.
func (p *patient) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopped = true
	p.timer.Stop()
	if p.shares {
		p.shares = writeIn(p.dir, "cpu.idle", "1") != nil
	}
}

// waiting is what the kernel counts of all threads of a process: how long they went, and how long they waited for a CPU.
type waiting struct{ ran, waited time.Duration }

// waited is the count so far; of a kernel that does not count it tells of nothing.
func waited(pid int) (w waiting) {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid)) // the pattern is good
	for _, f := range files {
		text, err := os.ReadFile(f)
		var ran, waited time.Duration
		if err != nil { // it has ended
			continue
		}
		if _, err := fmt.Sscan(string(text), &ran, &waited); err == nil {
			w.ran, w.waited = w.ran+ran, w.waited+waited
		}
	}
	return w
}

// starved says whether it has waited in vain since before, or cannot know.
func (w waiting) starved(before waiting) bool {
	ran, waited := w.ran-before.ran, w.waited-before.waited
	return w == waiting{} || float64(ran) < starvedBelow*float64(ran+waited)
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
