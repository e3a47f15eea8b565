package confine

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"

	"github.com/containerd/cgroups/v3/cgroup2"
)

// treeV2 is a group below the one that the worker was started in.
type treeV2 struct {
	mount, name, dir string
	home             *homeGroup
	has              []string
}

// homeGroup is the group that this process was started in. A group hands limits down only if no process is in it: then
// this process moves to a group beside its trials', and back when its last tree is closed. All the trees of a process
// share it.
type homeGroup struct {
	mu    sync.Mutex
	trees int
	dir   string
	aside string // where the process is now, if it has moved
	gave  []string
}

var home homeGroup

// openV2 makes the tree. An error says that this process may make no groups; limits that it may not set are left out.
func openV2(mount, name string) (tree, error) {
	home.mu.Lock()
	defer home.mu.Unlock()
	if home.trees == 0 {
		own, err := cgroup2.PidGroupPath(os.Getpid())
		if err != nil {
			return nil, fmt.Errorf("find the worker's control group: %w", err)
		}
		home.dir = filepath.Join(mount, own)
	}
	below, err := filepath.Rel(mount, home.dir)
	if err != nil {
		return nil, fmt.Errorf("find the worker's control group: %w", err)
	}
	t := &treeV2{mount: mount, name: filepath.Join("/", below, name), home: &home}
	t.dir = filepath.Join(mount, t.name)
	if _, err := cgroup2.NewManager(mount, t.name, &cgroup2.Resources{}); err != nil {
		return nil, fmt.Errorf("the worker may make no control groups (version 2): %w", err)
	}
	home.trees++
	for _, controller := range []string{"cpu", "memory"} {
		if home.give(controller, t.dir+asideSuffix) == nil && enable(t.dir, "+"+controller) == nil {
			t.has = append(t.has, controller)
		}
	}
	return t, nil
}

// asideSuffix ends the name of the group that the process moves to.
const asideSuffix = "-worker"

// enable lets the groups below a directory have limits of a kind, with +, or no longer, with -.
func enable(dir, controller string) error {
	return os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte(controller), 0o644) //nolint:gosec // a file of the kernel's
}

// moveTo moves this process to a group.
func moveTo(dir string) error {
	return os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0o644) //nolint:gosec // a file of the kernel's
}

// give lets groups below the process's own have limits of a kind. The process moves aside for it, and back at once if
// it was not the only one in the way. mu must be held.
func (h *homeGroup) give(controller, aside string) error {
	err := enable(h.dir, "+"+controller)
	if errors.Is(err, syscall.EBUSY) && h.aside == "" {
		if err := os.Mkdir(aside, 0o755); err != nil { //nolint:gosec // as the kernel makes them
			return err
		}
		h.aside = aside
		if err = moveTo(aside); err == nil {
			err = enable(h.dir, "+"+controller)
		}
		if err != nil {
			return errors.Join(err, h.back())
		}
	}
	if err == nil && h.aside != "" {
		h.gave = append(h.gave, controller)
	}
	return err
}

// back moves the process back to where it was started. A group that still gives limits takes no processes. mu must be held.
func (h *homeGroup) back() error {
	if h.aside == "" {
		return nil
	}
	for _, controller := range h.gave {
		if err := enable(h.dir, "-"+controller); err != nil {
			return fmt.Errorf("take limits back from %s: %w", h.dir, err)
		}
	}
	h.gave = nil
	if err := moveTo(h.dir); err != nil {
		return fmt.Errorf("move back to control group %s: %w", h.dir, err)
	}
	aside := h.aside
	h.aside = ""
	return removeGroups(aside)
}

// left is called once for each tree, when it is closed.
func (h *homeGroup) left() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.trees--
	if h.trees > 0 {
		return nil
	}
	return h.back()
}

// where names the group that the process moved to as well: when the worker is gone that one is empty.
func (t *treeV2) where() []string {
	t.home.mu.Lock()
	defer t.home.mu.Unlock()
	if t.home.aside == "" {
		return []string{t.dir}
	}
	return []string{t.dir, t.home.aside}
}

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

func (t *treeV2) close() error {
	err := removeGroups(t.dir)
	return errors.Join(err, t.home.left())
}

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
