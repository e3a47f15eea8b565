package container

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// Read returns the limits of this process.
func Read() (Limits, error) { return read(procfs.DefaultMountPoint) }

// read returns the limits of the process that reads them, from a mounted proc file system.
func read(proc string) (Limits, error) {
	l, err := limits(proc)
	if err != nil {
		return Limits{}, fmt.Errorf("read the limits of this process's control groups: %w", err)
	}
	return l, nil
}

func limits(proc string) (l Limits, err error) {
	fsys, err := procfs.NewFS(proc)
	if err != nil {
		return l, err
	}
	self, err := fsys.Self()
	if err != nil {
		return l, err
	}
	groups, err := self.Cgroups()
	if errors.Is(err, fs.ErrNotExist) { // a kernel without control groups
		return l, nil
	}
	if err != nil {
		return l, err
	}
	mounts, err := self.MountInfo()
	if err != nil {
		return l, err
	}
	for _, g := range groups {
		for _, dir := range visible(g, mounts) {
			l.addGroup(dir, g)
		}
	}
	return l, nil
}

// visible returns the directories of a group and of the groups above it that this process can see.
func visible(g procfs.Cgroup, mounts []*procfs.MountInfo) (dirs []string) {
	var tops []string
	for _, m := range mounts {
		if !mountsGroup(m, g) {
			continue
		}
		tops = append(tops, m.MountPoint)
		below, err := filepath.Rel(m.Root, g.Path)
		if err != nil || below == ".." || strings.HasPrefix(below, "../") {
			continue
		}
		for dir := filepath.Join(m.MountPoint, below); ; dir = filepath.Dir(dir) {
			dirs = append(dirs, dir)
			if dir == m.MountPoint || dir == filepath.Dir(dir) {
				break
			}
		}
	}
	if len(dirs) == 0 { // mounted by a container runtime under a path that this process cannot relate to its own
		return tops
	}
	return dirs
}

// mountsGroup reports whether a mount shows the hierarchy of a group.
func mountsGroup(m *procfs.MountInfo, g procfs.Cgroup) bool {
	if g.HierarchyID == 0 {
		return m.FSType == "cgroup2"
	}
	return m.FSType == "cgroup" && len(g.Controllers) > 0 && slices.ContainsFunc(g.Controllers, func(c string) bool {
		_, has := m.SuperOptions[c]
		return has
	})
}

// addGroup lowers the limits to those of one directory. A file that is missing or unreadable sets no limit.
func (l *Limits) addGroup(dir string, g procfs.Cgroup) {
	if g.HierarchyID == 0 {
		quota, period, _ := strings.Cut(text(dir, "cpu.max"), " ")
		l.limitCPUs(number(quota), number(period), identity(dir))
		l.limitMemory(int64(number(text(dir, "memory.max"))))
		return
	}
	if slices.Contains(g.Controllers, "cpu") {
		l.limitCPUs(number(text(dir, "cpu.cfs_quota_us")), number(text(dir, "cpu.cfs_period_us")), identity(dir))
	}
	if slices.Contains(g.Controllers, "memory") {
		l.limitMemory(int64(number(text(dir, "memory.limit_in_bytes"))))
		// It includes the groups that a container cannot see.
		for line := range strings.Lines(text(dir, "memory.stat")) {
			if value, ok := strings.CutPrefix(line, "hierarchical_memory_limit "); ok {
				l.limitMemory(int64(number(value)))
			}
		}
	}
}

// text returns the content of a file, or "" if it cannot be read.
func text(dir, file string) string {
	content, err := os.ReadFile(filepath.Join(dir, file)) //nolint:gosec // a file of the kernel
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(content))
}

// number returns a number, or 0 for "max", -1 and any other text.
func number(text string) float64 {
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil || n < 0 {
		return 0
	}
	return float64(n)
}

// identity returns a name of a control group that is the same for all processes in it, whatever path they see.
func identity(dir string) string {
	var stat unix.Stat_t
	if err := unix.Stat(dir, &stat); err != nil {
		return ""
	}
	return fmt.Sprintf("%d.%d", stat.Dev, stat.Ino)
}
