//go:build linux

package confine

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
)

// A worker ends the trials of killed workers, removes their groups, and touches nothing else.
func TestGroupsOfKilledWorkersAreRemoved(t *testing.T) {
	t.Parallel()
	own, err := openTree(filepath.Join(t.TempDir(), "groups"))
	if err != nil {
		t.Skipf("a test may make no control groups here: %v", err)
	}
	t.Cleanup(func() {
		if err := own.close(); err != nil {
			t.Error(err)
		}
	})
	ended := exec.Command("true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	dead := ended.Process.Pid
	trial, other := exec.Command("sleep", "600"), exec.Command("cat")
	open, err := other.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(trial.Start(), other.Start()); err != nil {
		t.Fatal(err)
	}
	finished := make(chan error, 1)
	go func() { finished <- trial.Wait() }() // a zombie is still in its group
	here := pidNamespace()
	left := map[string]bool{} // whether each group has to stay
	for _, g := range []struct {
		name string
		pid  int // inside it; 0 for none
		left bool
	}{
		{name: fmt.Sprintf("outbid-%d.%s-aaaaaaaa", dead, here)},
		{name: fmt.Sprintf("outbid-%d.%s-aaaaaaaa-worker", dead, here)},
		{name: fmt.Sprintf("outbid-%d.%s-aaaaaaaa-behind", dead, here)},
		{name: fmt.Sprintf("outbid-%d.%s-bbbbbbbb", dead, here), pid: trial.Process.Pid},
		{name: fmt.Sprintf("outbid-%d.%s-bbbbbbbb-worker", dead, here), pid: other.Process.Pid, left: true},
		{name: fmt.Sprintf("outbid-%d.%s-aaaaaaaa", os.Getpid(), here), left: true},
		{name: fmt.Sprintf("outbid-%d.1-aaaaaaaa", dead), left: true}, // of another namespace, where it may live
		{name: fmt.Sprintf("outbid-of-others-%d", dead), left: true},
	} {
		for _, tree := range own.where() {
			dir := filepath.Join(filepath.Dir(tree), g.name)
			left[dir] = g.left
			below := filepath.Join(dir, "trial")
			if err := os.MkdirAll(below, 0o755); err != nil { //nolint:gosec // as the kernel creates them
				t.Fatal(err)
			}
			if g.pid == 0 {
				continue
			}
			if err := os.WriteFile(filepath.Join(below, "cgroup.procs"), []byte(strconv.Itoa(g.pid)), 0o600); err != nil {
				t.Fatal(err)
			}
			if !g.left { // as a worker that is killed while the trial is suspended leaves it
				hold(t, below)
			}
		}
	}
	t.Cleanup(func() {
		if err := open.Close(); err != nil {
			t.Error(err)
		}
		if err := other.Wait(); err != nil {
			t.Error(err)
		}
		for dir := range left {
			if err := removeGroups(dir); err != nil {
				t.Error(err)
			}
		}
	})
	removeOrphans(own.where(), slog.New(slog.DiscardHandler))
	if err := <-finished; err == nil || err.Error() != "signal: killed" {
		t.Errorf("the trial ended with %v", err)
	}
	for _, tree := range own.where() {
		left[tree] = true
	}
	for dir, want := range left {
		if _, err := os.Stat(dir); (err == nil) != want {
			t.Errorf("%s: %v", dir, err)
		}
	}
}

// The directory of trials' files of a killed worker is removed. Those of a running worker, of an earlier version
// without a lock, and other files with such a name are left alone.
func TestFilesOfKilledWorkersAreRemoved(t *testing.T) {
	t.Parallel()
	base, err := os.MkdirTemp("", "outbid-roots-") //nolint:usetesting // others must be able to pass through it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(base) })
	if err := os.Chmod(base, 0o755); err != nil { //nolint:gosec // as a base must be
		t.Fatal(err)
	}
	start := func() *root {
		t.Helper()
		made, err := makeRoot(base)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Join(made.path, "home-1", "deep"), 0o700); err != nil {
			t.Fatal(err)
		}
		return made
	}
	alive, killed := start(), start()
	older, other := filepath.Join(base, rootPrefix+"older"), filepath.Join(base, rootPrefix+"file")
	if err := errors.Join(killed.alive.Close(), os.Mkdir(older, 0o700), os.WriteFile(other, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	removeDeadRoots(base, slog.New(slog.DiscardHandler))
	for path, want := range map[string]bool{alive.path: true, killed.path: false, older: true, other: true} {
		if _, err := os.Stat(path); (err == nil) != want {
			t.Errorf("%s: %v", path, err)
		}
	}
	if err := alive.remove(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(alive.path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a worker that ends leaves its directory: %v", err)
	}
}

// hold stops the processes in a control group, if its hierarchy has the freezer.
func hold(t *testing.T, dir string) {
	t.Helper()
	for file, state := range map[string]string{"freezer.state": "FROZEN", "cgroup.freeze": "1"} {
		err := os.WriteFile(filepath.Join(dir, file), []byte(state), 0o600)
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
			t.Fatal(err)
		}
	}
}
