package confine

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/containerd/cgroups/v3"
)

// tree is where the control groups of a worker's trials are.
type tree interface {
	// make makes the control group of one trial.
	make(name string, l Limits) (group, error)
	// where is what finds the tree again: the directories of its groups.
	where() []string
	// controls says which limits hold in it: cpu, memory.
	controls() []string
	close() error
}

// group is the control group of one trial.
type group interface {
	// start starts a command inside; the caller's goroutine is locked to its thread.
	start(cmd *exec.Cmd) error
	pids() ([]int, error)
	// kill kills what is inside and waits until it is gone. Afterwards something may be started again.
	kill() error
	// oomKills counts the processes that the kernel killed inside for want of memory.
	oomKills() uint64
	remove() error
}

// quotaPeriod is how often the share of CPUs is dealt out, in microseconds: the kernel's own default.
const quotaPeriod = 100_000

// quota is the time on CPUs in a period, in microseconds; the kernel takes no less than a millisecond.
func (l Limits) quota() int64 { return max(int64(l.CPUs*quotaPeriod), 1000) }

// openTree makes the tree of the control groups, of the version that the machine has.
func openTree() (tree, error) {
	name := fmt.Sprintf("outbid-%d-%s", os.Getpid(), strings.ToLower(newMark()[len(markEnv)+1:][:8]))
	switch cgroups.Mode() {
	case cgroups.Unified:
		return openV2("/sys/fs/cgroup", name)
	case cgroups.Legacy, cgroups.Hybrid:
		return openV1(name)
	case cgroups.Unavailable:
	}
	return nil, errors.New("this machine has no control groups at /sys/fs/cgroup")
}

// Groups says which version of control groups this process may make, and which limits hold in them: cpu, memory. An error
// says why there are none. It tries, and removes what it made.
func Groups() (version string, controls []string, err error) {
	t, err := openTree()
	if err != nil {
		return "", nil, err
	}
	version = "1"
	if _, ok := t.(*treeV2); ok {
		version = "2"
	}
	return version, t.controls(), t.close()
}

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
