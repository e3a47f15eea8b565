//go:build linux

package confine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/cgroups/v3"
	"github.com/containerd/cgroups/v3/cgroup2"
)

// delegated moves this process, alone, into a control group of version 2 with the controllers, as systemd does with
// Delegate= and as a container does. It needs root and a machine that only uses version 2.
func delegated(t *testing.T) string {
	t.Helper()
	if cgroups.Mode() != cgroups.Unified {
		t.Skip("this machine does not use the second version of control groups alone")
	}
	const mount = "/sys/fs/cgroup"
	before, err := cgroup2.PidGroupPath(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for _, controller := range []string{"+cpu", "+memory", "+pids"} {
		if err := enable(mount, controller); err != nil {
			t.Skipf("a test may not hand down limits: %v", err)
		}
	}
	dir := filepath.Join(mount, fmt.Sprint("outbid-delegated-", os.Getpid()))
	if err := os.Mkdir(dir, 0o755); err != nil { //nolint:gosec // as the kernel creates them
		t.Skipf("a test may make no control groups: %v", err)
	}
	if err := moveTo(dir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(moveTo(filepath.Join(mount, before)), removeGroups(dir)); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// A worker in a delegated group moves aside to delegate controllers, and leaves the group as it found it. That also
// holds for two workers in one process, whatever order they end in.
func TestADelegatedGroupIsLeftAsItWas(t *testing.T) {
	dir := delegated(t)
	where := func() string {
		own, err := cgroup2.PidGroupPath(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		return filepath.Join("/sys/fs/cgroup", own)
	}
	var trees []tree
	for range 2 {
		tree, err := openTree(filepath.Join(t.TempDir(), "groups"))
		if err != nil {
			t.Fatal(err)
		}
		if got := tree.controls(); !slices.Equal(got, []string{"cpu", "memory", "pids"}) {
			t.Fatalf("it limits %v", got)
		}
		if where() == dir {
			t.Error("the process is still in the group that hands limits down")
		}
		behind, err := tree.makeIdleGroup()
		if err != nil {
			t.Fatal(err)
		}
		if behind == "" || filepath.Dir(behind) != dir {
			t.Errorf("the idle group is %q; want one in %s", behind, dir)
		}
		if err := removeGroups(behind); err != nil {
			t.Error(err)
		}
		g, err := tree.make("one", Limits{CPUs: 0.5, MemoryBytes: 64 << 20})
		if err != nil {
			t.Fatal(err)
		}
		for file, want := range map[string]string{"memory.max": "67108864", "cpu.max": "50000 100000"} {
			text, err := os.ReadFile(filepath.Join(tree.where()[0], "one", file))
			if err != nil || strings.TrimSpace(string(text)) != want {
				t.Errorf("%s is %q, %v; want %s", file, text, err, want)
			}
		}
		if err := g.remove(); err != nil {
			t.Error(err)
		}
		trees = append(trees, tree)
	}
	for _, tree := range trees {
		if err := tree.close(); err != nil {
			t.Error(err)
		}
	}
	if where() != dir {
		t.Errorf("the process is in %s, it was started in %s", where(), dir)
	}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && path != dir {
			t.Errorf("%s is left", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// A group with other processes does not delegate controllers, and no process is moved.
func TestASharedGroupStaysAsItIs(t *testing.T) {
	dir := delegated(t)
	other := sleeper(t)
	own, err := cgroup2.PidGroupPath(other)
	if err != nil || filepath.Join("/sys/fs/cgroup", own) != dir {
		t.Fatalf("the other process is in %s, %v", own, err)
	}
	tree, err := openTree(filepath.Join(t.TempDir(), "groups"))
	if err != nil {
		t.Fatal(err)
	}
	if got := tree.controls(); len(got) > 0 {
		t.Errorf("it limits %v", got)
	}
	if own, err := cgroup2.PidGroupPath(os.Getpid()); err != nil || filepath.Join("/sys/fs/cgroup", own) != dir {
		t.Errorf("the process is in %s, %v", own, err)
	}
	if _, err := os.Stat(tree.where()[0] + asideSuffix); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a group to move to is left: %v", err)
	}
	if err := tree.close(); err != nil {
		t.Error(err)
	}
}

// sleeper starts another process in the group of this one, until the test ends.
func sleeper(t *testing.T) int {
	t.Helper()
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd.Process.Pid
}
