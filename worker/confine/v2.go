package confine

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/containerd/cgroups/v3/cgroup2"
)

// treeV2 is a group below the worker's own.
type treeV2 struct {
	mount, name, dir string
	manager          *cgroup2.Manager
	has              []string
}

// openV2 makes the tree below the group that the worker is in. Limits take controllers, which a group hands down only
// if no process is in it: then the worker moves to a group of its own beside its trials', if it is alone.
func openV2(mount, name string) (tree, error) {
	own, err := cgroup2.PidGroupPath(os.Getpid())
	if err != nil {
		return nil, fmt.Errorf("find the worker's control group: %w", err)
	}
	t := &treeV2{mount: mount, name: filepath.Join(own, name)}
	t.dir = filepath.Join(mount, t.name)
	if t.manager, err = cgroup2.NewManager(mount, t.name, &cgroup2.Resources{}); err != nil {
		return nil, fmt.Errorf("the worker may make no control groups (version 2): %w", err)
	}
	for _, controller := range []string{"cpu", "memory"} {
		if t.handDown(filepath.Join(mount, own), controller) == nil {
			t.has = append(t.has, controller)
		}
	}
	return t, nil
}

// handDown lets groups below the worker's own, and below the tree, have limits of a kind.
func (t *treeV2) handDown(own, controller string) error {
	enable := func(dir string) error {
		return os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+controller), 0o644) //nolint:gosec // a file of the kernel's
	}
	err := enable(own)
	if errors.Is(err, syscall.EBUSY) {
		var aside *cgroup2.Manager
		if aside, err = t.manager.NewChild("worker", nil); err == nil {
			err = aside.AddProc(uint64(os.Getpid()))
		}
		if err == nil {
			err = enable(own)
		}
	}
	if err != nil {
		return err
	}
	return enable(t.dir)
}

func (t *treeV2) where() []string { return []string{t.dir} }

func (t *treeV2) controls() []string { return t.has }

func (t *treeV2) make(name string, l Limits) (group, error) {
	res := &cgroup2.Resources{}
	if l.MemoryBytes > 0 && slices.Contains(t.has, "memory") {
		res.Memory = &cgroup2.Memory{Max: &l.MemoryBytes}
	}
	if l.CPUs > 0 && slices.Contains(t.has, "cpu") {
		quota, period := l.quota(), uint64(quotaPeriod)
		res.CPU = &cgroup2.CPU{Max: cgroup2.NewCPUMax(&quota, &period)}
	}
	if _, err := cgroup2.NewManager(t.mount, filepath.Join(t.name, name), res); err != nil {
		return nil, err
	}
	g := &groupV2{dir: filepath.Join(t.dir, name)}
	if res.Memory != nil { // without swap, where the kernel counts it: a trial over its limit is to end, not to crawl
		_ = os.WriteFile(filepath.Join(g.dir, "memory.swap.max"), []byte("0"), 0o644) //nolint:gosec // a file of the kernel's
	}
	return g, nil
}

func (t *treeV2) close() error { return removeGroups(t.dir) }

// groupV2 is one group.
type groupV2 struct{ dir string }

func (g *groupV2) start(cmd *exec.Cmd) error {
	dir, err := os.Open(g.dir)
	if err != nil {
		return fmt.Errorf("enter a control group: %w", err)
	}
	defer dir.Close() //nolint:errcheck // a directory
	cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(dir.Fd())
	return cmd.Start()
}

func (g *groupV2) pids() ([]int, error) { return pidsIn(g.dir) }

// kill kills all at once where the kernel can (5.14), and otherwise one by one.
func (g *groupV2) kill() error {
	err := os.WriteFile(filepath.Join(g.dir, "cgroup.kill"), []byte("1"), 0o644) //nolint:gosec // a file of the kernel's
	if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, os.ErrPermission) {
		return err
	}
	return killAll(g.pids)
}

func (g *groupV2) oomKills() uint64 { return countedIn(filepath.Join(g.dir, "memory.events")) }

func (g *groupV2) remove() error { return removeGroups(g.dir) }
