package container

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// fixture writes a proc file system and control groups below a directory, in which {} in mounts is replaced by the
// directory, and returns the path of the proc file system.
func fixture(t *testing.T, groups, mounts string, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	pid := strconv.Itoa(7)
	all := map[string]string{"proc/" + pid + "/cgroup": groups, "proc/" + pid + "/mountinfo": strings.ReplaceAll(mounts, "{}", dir)}
	for name, content := range files {
		all[name] = content
	}
	for name, content := range all {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(pid, filepath.Join(dir, "proc/self")); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "proc")
}

const (
	mountV2   = "41 31 0:38 / {}/cg rw,relatime - cgroup2 cgroup2 rw\n"
	mountsV1  = "32 31 0:29 ROOT {}/cg/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct\n35 31 0:32 ROOT {}/cg/memory rw - cgroup cgroup rw,memory\n"
	groupsV1  = "5:memory:PATH\n4:cpu,cpuacct:PATH\n1:name=systemd:/x\n0::/\n"
	gib       = 1 << 30
	unlimited = "9223372036854771712\n"
)

func TestRead(t *testing.T) {
	t.Parallel()
	v1 := func(text, root, path string) string {
		return strings.NewReplacer("ROOT", root, "PATH", path).Replace(text)
	}
	for name, c := range map[string]struct {
		groups, mounts string
		files          map[string]string
		cpus           float64
		memory         int64
	}{
		"v2 in a container's own namespace": {"0::/\n", mountV2, map[string]string{
			"cg/cpu.max": "150000 100000\n", "cg/memory.max": "536870912\n",
		}, 1.5, gib / 2},
		"v2 without limits":       {"0::/\n", mountV2, map[string]string{"cg/cpu.max": "max 100000\n", "cg/memory.max": "max\n"}, 0, 0},
		"v2 root group, no files": {"0::/\n", mountV2, map[string]string{"cg/cgroup.procs": ""}, 0, 0},
		"v2 limited by its parent": {"0::/pod/app\n", mountV2, map[string]string{
			"cg/pod/app/cpu.max": "400000 100000\n", "cg/pod/cpu.max": "100000 50000\n",
			"cg/pod/app/memory.max": "max\n", "cg/pod/memory.max": "1073741824\n",
		}, 2, gib},
		"v2 limited below its parent": {"0::/pod/app\n", mountV2, map[string]string{
			"cg/pod/app/cpu.max": "50000 100000\n", "cg/pod/cpu.max": "max 100000\n",
			"cg/pod/app/memory.max": "1048576\n", "cg/pod/memory.max": "1073741824\n",
		}, 0.5, 1 << 20},
		"v2 of a sibling group": {"0::/../other\n", mountV2, map[string]string{
			"cg/cpu.max": "300000 100000\n", "other/cpu.max": "100000 100000\n",
		}, 3, 0},
		"v1 on the host": {v1(groupsV1, "/", "/svc/worker"), v1(mountsV1, "/", ""), map[string]string{
			"cg/cpu/svc/worker/cpu.cfs_quota_us": "-1\n", "cg/cpu/svc/worker/cpu.cfs_period_us": "100000\n",
			"cg/cpu/svc/cpu.cfs_quota_us": "250000\n", "cg/cpu/svc/cpu.cfs_period_us": "100000\n",
			"cg/memory/svc/worker/memory.limit_in_bytes": unlimited, "cg/memory/svc/memory.limit_in_bytes": "1073741824\n",
			"cg/memory/memory.limit_in_bytes": unlimited,
		}, 2.5, gib},
		"v1 in a container": {v1(groupsV1, "", "/kubepods/pod1/c"), v1(mountsV1, "/kubepods/pod1/c", ""), map[string]string{
			"cg/cpu/cpu.cfs_quota_us": "100000\n", "cg/cpu/cpu.cfs_period_us": "100000\n",
			"cg/memory/memory.limit_in_bytes": "536870912\n",
		}, 1, gib / 2},
		"v1, memory limited above the container": {v1(groupsV1, "", "/kubepods/pod1/c"), v1(mountsV1, "/kubepods/pod1/c", ""), map[string]string{
			"cg/memory/memory.limit_in_bytes": unlimited, "cg/memory/memory.stat": "cache 12\nhierarchical_memory_limit 536870912\nrss 3\n",
		}, 0, gib / 2},
		"v1 without limits": {v1(groupsV1, "", "/"), v1(mountsV1, "/", ""), map[string]string{
			"cg/cpu/cpu.cfs_quota_us": "-1\n", "cg/cpu/cpu.cfs_period_us": "100000\n", "cg/memory/memory.limit_in_bytes": unlimited,
			"cg/memory/memory.stat": "hierarchical_memory_limit " + unlimited,
		}, 0, 0},
		"v1 under an unrelated path": {v1(groupsV1, "", "/"), v1(mountsV1, "/docker/1", ""), map[string]string{
			"cg/cpu/cpu.cfs_quota_us": "200000\n", "cg/cpu/cpu.cfs_period_us": "100000\n",
		}, 2, 0},
		"nothing mounted": {v1(groupsV1, "", "/a"), "1 0 0:1 / / rw - ext4 /x rw\n", nil, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, err := read(fixture(t, c.groups, c.mounts, c.files))
			if err != nil {
				t.Fatal(err)
			}
			if l.CPUs != c.cpus || l.MemoryBytes != c.memory {
				t.Errorf("%v CPUs and %d bytes, want %v and %d", l.CPUs, l.MemoryBytes, c.cpus, c.memory)
			}
			if (l.CPUGroup != "") != (c.cpus > 0) {
				t.Errorf("%v CPUs of group %q", l.CPUs, l.CPUGroup)
			}
		})
	}
}

func TestReadWithoutGroups(t *testing.T) {
	t.Parallel()
	proc := fixture(t, "", "", nil)
	if err := os.Remove(filepath.Join(proc, "7/cgroup")); err != nil {
		t.Fatal(err)
	}
	if l, err := read(proc); err != nil || l != (Limits{}) {
		t.Errorf("%+v, %v", l, err)
	}
	if _, err := read(filepath.Join(proc, "none")); err == nil {
		t.Error("a missing proc file system is not reported")
	}
}
