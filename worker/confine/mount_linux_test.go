package confine

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// hiddenEnv is set if control groups are hidden, as in 'ip netns exec'.
const hiddenEnv = "OUTBID_TEST_HIDDEN"

// If control groups are not mounted, the worker mounts them for itself. If it cannot, it warns about what is not
// limited.
func TestControlGroupsThatAreNotMounted(t *testing.T) {
	if os.Getenv(hiddenEnv) == "" {
		t.Parallel()
		if os.Geteuid() != 0 {
			t.Skip("this takes root")
		}
		cmd := exec.Command("unshare", "-m", "sh", "-c", `umount -l /sys && mount -t sysfs sysfs /sys && exec "$0" "$@"`,
			os.Args[0], "-test.run=^TestControlGroupsThatAreNotMounted$", "-test.v")
		cmd.Env = append(os.Environ(), hiddenEnv+"=yes")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	dir := t.TempDir()
	c, err := Open(t.Context(), Config{Dir: dir, User: Auto, Processes: 40})
	if err != nil {
		t.Fatal(err)
	}
	if c.tree == nil {
		t.Fatalf("there are no control groups: %s", c.whyNoTree)
	}
	if slices.Contains(c.tree.controls(), "memory") {
		in, err := c.New(t.Context(), Limits{MemoryBytes: 32 << 20})
		if err != nil {
			t.Fatal(err)
		}
		_, wait := run(t, in, `x=$(head -c 200000000 /dev/zero | tr '\0' x); echo ${#x}`)
		if err := wait(); err == nil || in.Left().MemoryBytes == 0 {
			t.Errorf("it had its memory: %v", err)
		}
		if err := in.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil || strings.Contains(string(mounts), dir) {
		t.Errorf("mounts are left: %v\n%s", err, mounts)
	}
	// A file is where the mounts would be.
	if err := os.WriteFile(filepath.Join(dir, "cgroup"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c, err = Open(t.Context(), Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if w := strings.Join(c.Warnings(), "; "); !strings.Contains(w, "memory, CPUs and processes are not limited: no control groups are mounted") {
		t.Errorf("its warnings are %q", w)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	_ = unix.Unlink(filepath.Join(dir, "cgroup"))
}

func TestHierarchies(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"0::/a\n": "",
		"4:cpu,cpuacct:/\n3:memory:/x\n1:name=y:/\n0::/\n": "cpu=cpu,cpuacct memory=memory",
	} {
		path := filepath.Join(t.TempDir(), "cgroup")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		found, err := hierarchies(path)
		var got []string
		for name, together := range found {
			got = append(got, name+"="+together)
		}
		slices.Sort(got)
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}
