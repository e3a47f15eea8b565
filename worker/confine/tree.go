package confine

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// tree holds the control groups of a worker's trials.
type tree interface {
	// make creates the control group of one trial.
	make(name string, l Limits) (group, error)
	// where returns the directories of the tree, for the record.
	where() []string
	// controls returns the available controllers: cpu, memory, pids.
	controls() []string
	// makeIdleGroup creates the idle group next to the worker's own group, not among its trials, and returns its
	// directory, so that it has lower priority than the worker and all trials. It returns "" if groups do not share
	// CPUs. The caller removes the group.
	makeIdleGroup() (dir string, err error)
	close() error
}

// group is the control group of one trial.
type group interface {
	// start starts a command in the group by calling start; the caller's goroutine is locked to its thread.
	start(cmd *exec.Cmd, start func() error) error
	pids() ([]int, error)
	// kill kills all processes in the group and waits until they are gone. Afterwards new processes may be started.
	kill() error
	// refusals counts how often the limit of processes and threads prevented the start of one.
	refusals() uint64
	// oomKills counts the processes in the group that the kernel killed because of the memory limit.
	oomKills() uint64
	// holds reports whether hold works. hold stops or continues all processes in the group. No thread of the worker
	// may be in the group meanwhile.
	holds() bool
	hold(held bool) error
	// unwritten returns how many bytes written by the group are not on a disk yet.
	unwritten() (int64, error)
	// threads returns the file that lists the threads in the group.
	threads() string
	remove() error
}

// asideSuffix is the suffix of the group that the process moves to, after the name of its first tree.
const asideSuffix = "-worker"

// idleSuffix is the suffix of the name of the idle group.
const idleSuffix = "-behind"

// quotaPeriod is the period of CPU quotas in microseconds: the kernel's default.
const quotaPeriod = 100_000

// quota returns the CPU time per period in microseconds; the kernel's minimum is a millisecond.
func (l Limits) quota() int64 { return max(int64(l.CPUs*quotaPeriod), 1000) }

// pidsIn returns the processes in a control group except the worker itself, which has a thread inside while it starts
// a process.
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
