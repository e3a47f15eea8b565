package predecessor

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// child is set to a directory if this test process has to run a worker in it.
const child = "PREDECESSOR_DIR"

// run runs the tests. This process's crash file outlives each of them.
func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "predecessor-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir) //nolint:errcheck // it is temporary
	if _, err := crashFile(dir); err != nil {
		panic(err)
	}
	return m.Run()
}

// few is a constant count of kernel kills, because other tests cause such kills meanwhile.
func few() int64 { return 3 }

func TestMain(m *testing.M) {
	dir := os.Getenv(child)
	if dir == "" {
		os.Exit(run(m))
	}
	n, _, err := begin(dir, "boot-1", os.Getenv("ISOLATED") != "", few)
	if err != nil {
		panic(err)
	}
	switch os.Getenv("ENDS") {
	case "panic":
		panic("a defect")
	case "well":
		if err := n.End(); err != nil {
			panic(err)
		}
	default:
		os.Exit(1) // like a kill: no deferred function runs
	}
}

// The next worker knows how the previous one ended.
func TestHowTheWorkerBeforeEnded(t *testing.T) {
	t.Parallel()
	change := func(t *testing.T, dir string, f func(*note)) {
		t.Helper()
		path := filepath.Join(dir, "worker.json")
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var n note
		if err := json.Unmarshal(data, &n); err != nil {
			t.Fatal(err)
		}
		f(&n)
		if data, err = json.Marshal(n); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		ends, isolated string
		then           func(t *testing.T, dir string)
		killed         string
	}{
		"killed":        {ends: "killed", isolated: "yes", killed: "boot-1"},
		"well":          {ends: "well", isolated: "yes"},
		"panic":         {ends: "panic", isolated: "yes"},
		"trials can":    {ends: "killed"},
		"other boot":    {ends: "killed", isolated: "yes", then: func(t *testing.T, dir string) { t.Helper(); change(t, dir, func(n *note) { n.Machine = "x" }) }},
		"out of memory": {ends: "killed", isolated: "yes", then: func(t *testing.T, dir string) { t.Helper(); change(t, dir, func(n *note) { n.OOMKills-- }) }},
		"no crash file": {ends: "killed", isolated: "yes", then: func(t *testing.T, dir string) { t.Helper(); change(t, dir, func(n *note) { n.Crashes += "x" }) }},
		"not counted":   {ends: "killed", isolated: "yes", then: func(t *testing.T, dir string) { t.Helper(); change(t, dir, func(n *note) { n.OOMKills = -1 }) }},
		"damaged record": {ends: "killed", isolated: "yes", then: func(t *testing.T, dir string) {
			t.Helper()
			_ = os.WriteFile(filepath.Join(dir, "worker.json"), []byte("{"), 0o600)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			cmd := exec.CommandContext(t.Context(), os.Args[0])
			cmd.Env = append(os.Environ(), child+"="+dir, "ENDS="+c.ends, "ISOLATED="+c.isolated)
			out, err := cmd.CombinedOutput()
			if (err == nil) != (c.ends == "well") {
				t.Fatalf("%v\n%s", err, out)
			}
			if c.ends == "panic" && !strings.Contains(string(out), "a defect") {
				t.Errorf("its crash is not printed any more:\n%s", out)
			}
			if c.then != nil {
				c.then(t, dir)
			}
			n, killed, err := begin(dir, "boot-2", true, few)
			if err != nil || killed != c.killed {
				t.Errorf("it says that %q was killed, want %q: %v", killed, c.killed, err)
			}
			n.kills = func() int64 { return 4 }
			if err := n.Refresh(); err != nil {
				t.Error(err)
			}
			if _, killed, err = begin(dir, "boot-3", true, n.kills); err != nil || killed != "boot-2" {
				t.Errorf("after the kernel has killed one more that the worker has noted it says %q: %v", killed, err)
			}
			if err := n.End(); err != nil {
				t.Error(err)
			}
		})
	}
}
