package confine

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/containerd/cgroups/v3/cgroup1"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// usualMount is where control groups are mounted.
const usualMount = "/sys/fs/cgroup"

// treeV1 is a group below the worker's own in each hierarchy that the worker may write to.
type treeV1 struct {
	// root is where the hierarchies are mounted.
	root, name string
	// own is the worker's group in each hierarchy when the tree was created.
	own map[cgroup1.Name]string
	// home is the group of the worker and of its threads while they do not start anything.
	home  cgroup1.Cgroup
	names []cgroup1.Name
	dirs  []string
}

// hierarchyV1 returns a hierarchy with the named subsystems.
func hierarchyV1(root string, names []cgroup1.Name) cgroup1.Hierarchy {
	return func() ([]cgroup1.Subsystem, error) {
		var list []cgroup1.Subsystem
		for _, name := range names {
			switch name {
			case cgroup1.Memory:
				list = append(list, cgroup1.NewMemory(root, cgroup1.OptionalSwap()))
			case cgroup1.Cpu:
				list = append(list, cgroup1.NewCpu(root))
			case cgroup1.Pids:
				list = append(list, cgroup1.NewPids(root))
			case cgroup1.Freezer:
				list = append(list, cgroup1.NewFreezer(root))
			}
		}
		return list, nil
	}
}

// openV1 finds the hierarchies in which the worker can create groups.
func openV1(root, name string) (tree, error) {
	t := &treeV1{root: root, name: name, own: map[cgroup1.Name]string{}}
	own := cgroup1.PidPath(os.Getpid())
	if root != usualMount { // PidPath looks for mounts of all hierarchies of the kernel
		paths, err := cgroup1.ParseCgroupFile("/proc/self/cgroup")
		if err != nil {
			return nil, fmt.Errorf("find the worker's control group: %w", err)
		}
		own = func(sub cgroup1.Name) (string, error) {
			path, ok := paths[string(sub)]
			if !ok {
				return "", cgroup1.ErrControllerNotActive
			}
			return path, nil
		}
	}
	var why error
	for _, sub := range []cgroup1.Name{cgroup1.Memory, cgroup1.Cpu, cgroup1.Pids, cgroup1.Freezer} {
		path, err := own(sub)
		if err != nil {
			continue // not on this machine
		}
		dir := filepath.Join(root, string(sub), path, name)
		if err := os.Mkdir(dir, 0o755); err != nil { //nolint:gosec // as the kernel creates them
			why = err
			continue
		}
		t.names, t.dirs, t.own[sub] = append(t.names, sub), append(t.dirs, dir), path
	}
	if len(t.names) == 0 {
		if why == nil {
			why = errors.New("no hierarchy is mounted")
		}
		return nil, fmt.Errorf("the worker cannot create control groups (version 1): %w", why)
	}
	var err error
	if t.home, err = cgroup1.Load(t.at, cgroup1.WithHierarchy(hierarchyV1(t.root, t.names))); err != nil {
		return nil, errors.Join(fmt.Errorf("find the worker's control group: %w", err), t.close())
	}
	return t, nil
}

// at returns the worker's group in a hierarchy.
func (t *treeV1) at(sub cgroup1.Name) (string, error) { return t.own[sub], nil }

func (t *treeV1) where() []string { return t.dirs }

func (t *treeV1) controls() []string {
	var list []string
	for _, name := range t.names {
		if name == cgroup1.Memory || name == cgroup1.Cpu || name == cgroup1.Pids {
			list = append(list, string(name))
		}
	}
	return list
}

func (t *treeV1) make(name string, l Limits) (group, error) {
	res := &specs.LinuxResources{Memory: &specs.LinuxMemory{}, CPU: &specs.LinuxCPU{}}
	if l.MemoryBytes > 0 {
		res.Memory = &specs.LinuxMemory{Limit: &l.MemoryBytes, Swap: &l.MemoryBytes}
	}
	if l.CPUs > 0 {
		quota, period := l.quota(), uint64(quotaPeriod)
		res.CPU = &specs.LinuxCPU{Quota: &quota, Period: &period}
	}
	if l.processes > 0 {
		res.Pids = &specs.LinuxPids{Limit: &l.processes}
	}
	c, err := cgroup1.New(func(sub cgroup1.Name) (string, error) {
		return filepath.Join(t.own[sub], t.name, name), nil
	}, res, cgroup1.WithHierarchy(hierarchyV1(t.root, t.names)))
	if err != nil {
		return nil, err
	}
	g := &groupV1{tree: t, cgroup: c, processes: "max"}
	if l.processes > 0 {
		g.processes = strconv.FormatInt(l.processes, 10)
	}
	for _, dir := range t.dirs {
		g.dirs = append(g.dirs, filepath.Join(dir, name))
	}
	return g, nil
}

func (t *treeV1) makeIdleGroup() (string, error) {
	if !slices.Contains(t.names, cgroup1.Cpu) {
		return "", nil
	}
	return makeIdleGroup(filepath.Join(t.root, string(cgroup1.Cpu), t.own[cgroup1.Cpu], t.name+idleSuffix))
}

func (t *treeV1) close() error {
	var errs []error
	for _, dir := range t.dirs {
		errs = append(errs, removeGroups(dir))
	}
	return errors.Join(errs...)
}

// groupV1 is one group in several hierarchies.
type groupV1 struct {
	tree   *treeV1
	cgroup cgroup1.Cgroup
	dirs   []string
	// processes is the content of its pids.max.
	processes string
}

// start moves this thread into the group while it starts the command, so that the new process is never outside.
func (g *groupV1) start(_ *exec.Cmd, start func() error) error {
	tid := cgroup1.Process{Pid: unix.Gettid()}
	err := g.cgroup.AddTask(tid)
	if err == nil {
		err = start()
	} else {
		err = fmt.Errorf("enter a control group: %w", err)
	}
	if back := g.tree.home.AddTask(tid); back != nil {
		err = errors.Join(err, fmt.Errorf("leave a control group: %w", back))
	}
	return err
}

func (g *groupV1) pids() ([]int, error) {
	var all []int
	for _, dir := range g.dirs {
		pids, err := pidsIn(dir)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		all = append(all, pids...)
	}
	return all, nil
}

// kill keeps the processes in the group from starting others, and kills them one by one.
func (g *groupV1) kill() error {
	limit := func(text string) error {
		if dir := g.dir(cgroup1.Pids); dir != "" {
			err := os.WriteFile(filepath.Join(dir, "pids.max"), []byte(text), 0o644) //nolint:gosec // a file of the kernel
			if !errors.Is(err, os.ErrNotExist) {
				return err
			}
		}
		return nil
	}
	if err := limit("1"); err != nil {
		return err
	}
	return errors.Join(killAll(g.pids), limit(g.processes))
}

// dir returns the group's directory in a hierarchy, or "" if it has none.
func (g *groupV1) dir(name cgroup1.Name) string {
	if i := slices.Index(g.tree.names, name); i >= 0 {
		return g.dirs[i]
	}
	return ""
}

func (g *groupV1) oomKills() uint64 {
	return countedIn(filepath.Join(g.dir(cgroup1.Memory), "memory.oom_control"), "oom_kill")
}

func (g *groupV1) refusals() uint64 {
	return countedIn(filepath.Join(g.dir(cgroup1.Pids), "pids.events"), "max")
}

func (g *groupV1) holds() bool { return g.dir(cgroup1.Freezer) != "" }

func (g *groupV1) hold(held bool) error {
	dir := g.dir(cgroup1.Freezer)
	if dir == "" {
		return errNotHeld
	}
	state := "THAWED"
	if held {
		state = "FROZEN"
	}
	return os.WriteFile(filepath.Join(dir, "freezer.state"), []byte(state), 0o644) //nolint:gosec // a file of the kernel
}

func (g *groupV1) unwritten() (int64, error) {
	dir := g.dir(cgroup1.Memory)
	if dir == "" {
		return 0, errNotHeld
	}
	return bytesIn(filepath.Join(dir, "memory.stat"), "total_dirty", "total_writeback")
}

func (g *groupV1) threads() string { return filepath.Join(g.dirs[0], "tasks") }

func (g *groupV1) remove() error {
	var errs []error
	for _, dir := range g.dirs {
		errs = append(errs, removeGroups(dir))
	}
	return errors.Join(errs...)
}
