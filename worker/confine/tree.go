package confine

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// tree is where the control groups of a worker's trials are.
type tree interface {
	// make makes the control group of one trial.
	make(name string, l Limits) (group, error)
	// where is what finds the tree again: the directories of its groups.
	where() []string
	// controls says which limits hold in it: cpu, memory, pids.
	controls() []string
	// behind makes a control group beside the worker itself, not among its trials, and returns its directory: what is in it
	// goes behind the worker and all trials alike. It is "" where groups do not share out CPUs. Who asked for it removes it.
	behind() (dir string, err error)
	close() error
}

// group is the control group of one trial.
type group interface {
	// start starts a command inside by start; the caller's goroutine is locked to its thread.
	start(cmd *exec.Cmd, start func() error) error
	pids() ([]int, error)
	// kill kills what is inside and waits until it is gone. Afterwards something may be started again.
	kill() error
	// refusals counts how often a process or thread was not started for the limit of them.
	refusals() uint64
	// oomKills counts the processes that the kernel killed inside for want of memory.
	oomKills() uint64
	// holds says whether hold works. hold stops what is inside, or lets it run again. No thread of the worker's may be inside meanwhile.
	holds() bool
	hold(held bool) error
	// unwritten is how many bytes of what was written inside are not on a disk yet.
	unwritten() (int64, error)
	// threads is the file that lists the threads inside.
	threads() string
	remove() error
}

// asideSuffix ends the name of the group that the process moves to: that of its first tree, and this.
const asideSuffix = "-worker"

// behindSuffix ends the name of the group of what steps back.
const behindSuffix = "-behind"

// quotaPeriod is how often the share of CPUs is dealt out, in microseconds: the kernel's own default.
const quotaPeriod = 100_000

// quota is the time on CPUs in a period, in microseconds; the kernel takes no less than a millisecond.
func (l Limits) quota() int64 { return max(int64(l.CPUs*quotaPeriod), 1000) }

// pidsIn reads which processes are in the control group at a directory, without the worker itself: a thread of it is
// inside while it starts one.
func pidsIn(dir string) ([]int, error) {
	text, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return nil, err
	}
	var pids []int
	for field := range strings.FieldsSeq(string(text)) {
		var pid int
		if _, err := fmt.Sscan(field, &pid); err != nil {
			return nil, fmt.Errorf("read %s: %w", dir, err)
		}
		if pid != os.Getpid() && pid != 0 {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}
