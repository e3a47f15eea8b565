package inventory

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/procfs"

	"github.com/outbid-dev/outbid/worker/container"
)

// asContained is set in the process that TestFindInAControlGroup starts in a control group.
const asContained = "OUTBID_TEST_CONTAINED"

// contained is what a process in a control group finds.
type contained struct {
	CPUs    int
	Memory  int64
	Devices int
	Names   []string
}

func TestFindInAControlGroup(t *testing.T) {
	if os.Getenv(asContained) != "" {
		m, err := find("cpu", noGPUs)
		if err != nil {
			t.Fatal(err)
		}
		out, err := json.Marshal(contained{CPUs: m.CPUs, Memory: m.MemoryBytes, Devices: len(m.Devices), Names: m.Names})
		if err != nil {
			t.Fatal(err)
		}
		fmt.Printf("found %s\n", out)
		return
	}
	const mib = 1 << 20
	outer := makeGroups(t, fmt.Sprintf("outbid-test-%d", os.Getpid()))
	outer.set(t, "cpu", "cpu.cfs_quota_us", "150000")
	outer.set(t, "memory", "memory.limit_in_bytes", strconv.Itoa(512*mib))
	inner := outer.child(t, "inner")
	inner.set(t, "memory", "memory.limit_in_bytes", strconv.Itoa(1024*mib))

	got := inner.find(t)
	if got.CPUs != 1 || got.Devices != 1 || got.Memory != 512*mib {
		t.Errorf("a group with 1024 MiB in one with 1.5 CPUs and 512 MiB: %+v", got)
	}
	if again := inner.find(t); len(again.Names) != 1 || again.Names[0] != got.Names[0] || !strings.HasPrefix(got.Names[0], corePrefix) {
		t.Errorf("names %v, then %v in the same group", got.Names, again.Names)
	}
	outer.set(t, "cpu", "cpu.cfs_quota_us", "-1")
	outer.set(t, "memory", "memory.limit_in_bytes", "-1")
	inner.set(t, "memory", "memory.limit_in_bytes", "-1")
	limits, err := container.Read()
	if err != nil {
		t.Fatal(err)
	}
	if got := inner.find(t); got.CPUs != limits.WholeCPUs(runtime.NumCPU()) || got.Memory <= 1024*mib && limits.MemoryBytes == 0 {
		t.Errorf("groups without limits of their own in one with %+v: %+v", limits, got)
	}
	inner.set(t, "cpuset", "cpuset.cpus", "0")
	if got := inner.find(t); got.CPUs != 1 || got.Devices != 1 || got.Names[0] != "core/0" {
		t.Errorf("a group with one core: %+v", got)
	}
}

// controlGroup is a control group of version 1, by controller.
type controlGroup map[string]string

// makeGroups creates a control group below the test's own, or skips the test.
func makeGroups(t *testing.T, name string) controlGroup {
	t.Helper()
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		t.Fatal(err)
	}
	self, err := fs.Self()
	if err != nil {
		t.Fatal(err)
	}
	own, err := self.Cgroups()
	if err != nil {
		t.Skip(err)
	}
	above := controlGroup{}
	for _, g := range own {
		for _, controller := range g.Controllers {
			above[controller] = filepath.Join("/sys/fs/cgroup", controller, g.Path)
		}
	}
	for _, controller := range []string{"cpu", "cpuset", "memory"} {
		if _, err := os.Stat(above[controller]); above[controller] == "" || err != nil {
			t.Skipf("no control groups of version 1 with %s", controller)
		}
	}
	return above.child(t, name)
}

// child creates a group in another one.
func (g controlGroup) child(t *testing.T, name string) controlGroup {
	t.Helper()
	below := controlGroup{}
	for _, controller := range []string{"cpu", "cpuset", "memory"} {
		dir := filepath.Join(g[controller], name)
		if err := os.Mkdir(dir, 0o755); err != nil { //nolint:gosec // as the kernel creates them
			t.Skipf("the test cannot create control groups: %v", err)
		}
		t.Cleanup(func() {
			if err := os.Remove(dir); err != nil {
				t.Error(err)
			}
		})
		below[controller] = dir
	}
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} { // empty in a new group
		all, err := os.ReadFile(filepath.Join(g["cpuset"], file))
		if err != nil {
			t.Fatal(err)
		}
		below.set(t, "cpuset", file, string(all))
	}
	return below
}

func (g controlGroup) set(t *testing.T, controller, file, value string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(g[controller], file), []byte(value), 0o600); err != nil {
		t.Fatal(err)
	}
}

// find runs this test in the group, and returns what it finds there.
func (g controlGroup) find(t *testing.T) (found contained) {
	t.Helper()
	enter := `for dir in "$2" "$3" "$4"; do echo $$ > "$dir/cgroup.procs" || exit; done; exec "$1" -test.run='^TestFindInAControlGroup$'`
	cmd := exec.CommandContext(t.Context(), "sh", "-c", enter, "sh", os.Args[0], g["cpu"], g["cpuset"], g["memory"])
	cmd.Env = append(os.Environ(), asContained+"=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	_, rest, _ := strings.Cut(string(out), "found ")
	line, _, _ := strings.Cut(rest, "\n")
	if err := json.Unmarshal([]byte(line), &found); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	return found
}
