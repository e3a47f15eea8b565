package confine

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/containerd/cgroups/v3/cgroup2"
)

// treeV2 is a group below the one that the worker was started in.
type treeV2 struct {
	mount, name, dir string
	has              []string
}

// homeGroup is the group that this process was started in. A group can delegate controllers only if it does not
// contain processes. So this process moves to a group next to those of its trials, and back when its last tree is
// closed. All trees of a process share it.
type homeGroup struct {
	mu        sync.Mutex
	trees     int
	dir       string
	aside     string   // the group that the process has moved to, or ""
	delegated []string // the controllers that groups below may use
}

var home homeGroup //nolint:gochecknoglobals // a process is in one group, whichever worker asks

// openV2 creates the tree, without the controllers that this process cannot delegate. The error says that this
// process cannot create groups.
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
	t := &treeV2{mount: mount, name: strings.TrimPrefix(filepath.Join(home.dir, name), mount)}
	t.dir = filepath.Join(mount, t.name)
	if _, err := cgroup2.NewManager(mount, t.name, &cgroup2.Resources{}); err != nil {
		return nil, fmt.Errorf("the worker cannot create control groups (version 2): %w", err)
	}
	if home.trees == 0 {
		if err := home.delegate(t.dir + asideSuffix); err != nil {
			return nil, errors.Join(fmt.Errorf("delegate controllers: %w", err), removeGroups(t.dir))
		}
	}
	home.trees++
	for _, controller := range home.delegated {
		if enable(t.dir, "+"+controller) == nil {
			t.has = append(t.has, controller)
		}
	}
	return t, nil
}

// enable changes whether the groups below a directory can use a controller: with the prefix + they can, with - they
// cannot.
func enable(dir, controller string) error {
	return os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte(controller), 0o644) //nolint:gosec // a file of the kernel
}

// moveTo moves this process to a group.
func moveTo(dir string) error {
	return os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0o644) //nolint:gosec // a file of the kernel
}

// delegate delegates controllers to groups below the process's own, as far as possible. Only the root group delegates
// some while it contains processes. In other groups, the memory controller is refused while there are processes, and
// the cpu controller makes the groups below unfit for processes. So the process moves aside first, and back at once
// if other processes are in its group. The caller holds mu.
func (h *homeGroup) delegate(aside string) error {
	h.delegated = nil
	if _, err := os.Stat(filepath.Join(h.dir, "cgroup.type")); err == nil {
		if others, err := pidsIn(h.dir); err != nil || len(others) > 0 {
			return err
		}
		if err := os.Mkdir(aside, 0o755); err != nil { //nolint:gosec // as the kernel creates them
			return err
		}
		h.aside = aside
		if err := moveTo(aside); err != nil {
			h.aside = ""
			return errors.Join(err, removeGroups(aside))
		}
		if others, err := pidsIn(h.dir); err != nil || len(others) > 0 {
			return errors.Join(err, h.moveBack())
		}
	}
	for _, controller := range []string{"cpu", "memory", "pids"} {
		if enable(h.dir, "+"+controller) == nil {
			h.delegated = append(h.delegated, controller)
		}
	}
	if len(h.delegated) == 0 {
		return h.moveBack()
	}
	return nil
}

// moveBack moves the process back to where it was started, after it has disabled the delegated controllers, because a
// group that delegates does not accept processes. The caller holds mu.
func (h *homeGroup) moveBack() error {
	if h.aside == "" {
		return nil
	}
	for _, controller := range h.delegated {
		if err := enable(h.dir, "-"+controller); err != nil {
			return fmt.Errorf("disable the controllers of %s: %w", h.dir, err)
		}
	}
	h.delegated = nil
	if err := moveTo(h.dir); err != nil {
		return fmt.Errorf("move back to control group %s: %w", h.dir, err)
	}
	aside := h.aside
	h.aside = ""
	return removeGroups(aside)
}

// treeClosed is called once for each tree, when it is closed.
func (h *homeGroup) treeClosed() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.trees--
	if h.trees > 0 {
		return nil
	}
	return h.moveBack()
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
	if l.processes > 0 && slices.Contains(t.has, "pids") {
		res.Pids = &cgroup2.Pids{Max: l.processes}
	}
	if _, err := cgroup2.NewManager(t.mount, filepath.Join(t.name, name), res); err != nil {
		return nil, err
	}
	g := &groupV2{dir: filepath.Join(t.dir, name)}
	if res.Memory != nil { // disables swap if the kernel accounts for it: a trial over its limit should end instead of slowing down
		_ = g.write("memory.swap.max", "0")
	}
	return g, nil
}

func (t *treeV2) makeIdleGroup() (string, error) {
	if !slices.Contains(t.has, "cpu") {
		return "", nil
	}
	return makeIdleGroup(t.dir + idleSuffix)
}

func (t *treeV2) close() error {
	err := removeGroups(t.dir)
	return errors.Join(err, home.treeClosed())
}

// groupV2 is one group.
type groupV2 struct{ dir string }

func (g *groupV2) start(cmd *exec.Cmd, start func() error) error {
	dir, err := os.Open(g.dir)
	if err != nil {
		return fmt.Errorf("enter a control group: %w", err)
	}
	defer dir.Close() //nolint:errcheck // a directory
	cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(dir.Fd())
	return start()
}

func (g *groupV2) pids() ([]int, error) { return pidsIn(g.dir) }

// kill freezes the group, so that no new processes start, and kills all processes in it. It does not use cgroup.kill,
// because Linux 6.18 immediately kills every process that is later started in such a group.
func (g *groupV2) kill() error {
	if err := g.hold(true); err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, os.ErrPermission) {
		return err
	}
	err := killAll(g.pids)
	if thawed := g.hold(false); thawed != nil && !errors.Is(thawed, os.ErrNotExist) && !errors.Is(thawed, os.ErrPermission) {
		err = errors.Join(err, thawed)
	}
	return err
}

func (g *groupV2) holds() bool {
	_, err := os.Stat(filepath.Join(g.dir, "cgroup.freeze"))
	return err == nil
}

func (g *groupV2) hold(held bool) error {
	state := "0"
	if held {
		state = "1"
	}
	return g.write("cgroup.freeze", state) // since Linux 5.2
}

func (g *groupV2) unwritten() (int64, error) {
	return bytesIn(filepath.Join(g.dir, "memory.stat"), "file_dirty", "file_writeback")
}

func (g *groupV2) threads() string { return filepath.Join(g.dir, "cgroup.threads") }

func (g *groupV2) write(file, text string) error {
	return os.WriteFile(filepath.Join(g.dir, file), []byte(text), 0o644) //nolint:gosec // a file of the kernel
}

func (g *groupV2) oomKills() uint64 {
	return countedIn(filepath.Join(g.dir, "memory.events"), "oom_kill")
}

func (g *groupV2) refusals() uint64 { return countedIn(filepath.Join(g.dir, "pids.events"), "max") }

func (g *groupV2) remove() error { return removeGroups(g.dir) }
