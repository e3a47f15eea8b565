package endtoend

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// TestNeighbouringVersions runs servers and workers of two builds together. The builds have the same code and
// different versions.
func TestNeighbouringVersions(t *testing.T) {
	t.Parallel()
	this, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	major, minor := releaseOf(t, this)
	newer := buildAs(t, fmt.Sprintf("%d.%d.0", major, minor+1))
	next := buildAs(t, fmt.Sprintf("%d.0.0", major+1))
	t.Run("newer server", func(t *testing.T) {
		t.Parallel()
		sweepAcross(t, newer, this)
	})
	t.Run("newer worker", func(t *testing.T) {
		t.Parallel()
		sweepAcross(t, this, newer)
	})
	t.Run("upgrade and rollback", func(t *testing.T) {
		t.Parallel()
		upgradeUnderASweep(t, this, newer)
	})
	t.Run("server of the next major version", func(t *testing.T) {
		t.Parallel()
		refusedAcross(t, next, this)
	})
	t.Run("worker of the next major version", func(t *testing.T) {
		t.Parallel()
		refusedAcross(t, this, next)
	})
}

// TestTheRecordedReleaseIsANeighbour does the same with the binary of an earlier commit, the newest one that recorded
// a golden ledger.
func TestTheRecordedReleaseIsANeighbour(t *testing.T) {
	t.Parallel()
	recorded := os.Getenv("OUTBID_RECORDED_BIN")
	if recorded == "" {
		t.Skip("no binary of the recorded release: OUTBID_RECORDED_BIN does not name one, as make test does where git has the history")
	}
	this, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	before, _ := releaseOf(t, recorded)
	if now, _ := releaseOf(t, this); now != before {
		t.Skip("the recorded release has another major version")
	}
	t.Run("newer server", func(t *testing.T) {
		t.Parallel()
		sweepAcross(t, this, recorded)
	})
	t.Run("newer worker", func(t *testing.T) {
		t.Parallel()
		sweepAcross(t, recorded, this)
	})
	t.Run("upgrade and rollback", func(t *testing.T) {
		t.Parallel()
		upgradeUnderASweep(t, recorded, this)
	})
}

// buildAs builds outbid with another version, for as long as the test runs.
func buildAs(t *testing.T, version string) string {
	t.Helper()
	file, err := filepath.Abs("../../VERSION")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	binary, other, overlay := filepath.Join(dir, "outbid"), filepath.Join(dir, "VERSION"), filepath.Join(dir, "overlay.json")
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {file: other}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(other, []byte(version+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(overlay, replace, 0o600); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-overlay", overlay, "-buildvcs=false", "-ldflags", "-s -w", "-o", binary, "../..")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building version %s: %v\n%s", version, err, out)
	}
	if got := versionOf(t, binary); got != version {
		t.Fatalf("version %s was built, and says that it is %s", version, got)
	}
	return binary
}

// versionOf returns the version of a binary, without its revision.
func versionOf(t *testing.T, binary string) string {
	t.Helper()
	out, err := exec.Command(binary, "version", "-o", "json").Output()
	if err != nil {
		t.Fatal(err)
	}
	var v struct{ Version string }
	if err := json.Unmarshal(out, &v); err != nil {
		t.Fatalf("%s: %v", out, err)
	}
	return v.Version
}

// releaseOf returns the major and the minor version of a binary.
func releaseOf(t *testing.T, binary string) (major, minor int) {
	t.Helper()
	if _, err := fmt.Sscanf(versionOf(t, binary), "%d.%d.", &major, &minor); err != nil {
		t.Fatalf("the version of %s: %v", binary, err)
	}
	return major, minor
}

// sweepAcross checks that a server and a worker of two builds run sweeps whose trials pause, continue and copy others.
func sweepAcross(t *testing.T, server, worker string) {
	t.Helper()
	c := newCluster(withBinary{t, server})
	c.t = withBinary{t, worker}
	c.worker("a", "cpu:2", "")
	halving := c.submit(job{name: "halving", mode: "well", tuner: hyperband(9)}.spec(t, c.locks))
	population := c.submit(job{name: "population", mode: "well", tuner: smallPopulation()}.spec(t, c.locks))
	c.mustDone(halving)
	c.mustDone(population)
	mustNotRestart(t, c, halving, population)
	if got := c.versions(t); !strings.HasPrefix(got["server"], versionOf(t, server)) || !strings.HasPrefix(got["a"], versionOf(t, worker)) {
		t.Errorf("the versions are %v", got)
	}
	noTwoOwners(t, c.locks)
	this, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	// The doctor says nothing about two builds of one release.
	if releaseName(t, server) != releaseName(t, this) {
		doctorFinds(t, "the server is another release", "--server", c.Info.API)
	} else if releaseName(t, worker) != releaseName(t, this) {
		doctorFinds(t, "it is another release", "--server", c.Info.API)
	}
}

// releaseName returns the version of a binary without its revision.
func releaseName(t *testing.T, binary string) string {
	t.Helper()
	name, _, _ := strings.Cut(versionOf(t, binary), "+")
	return name
}

func smallPopulation() *outbidv1.Tuner {
	return &outbidv1.Tuner{Seed: new(uint64(7)), Kind: &outbidv1.Tuner_Pbt{Pbt: &outbidv1.Pbt{
		MaxSteps: 12, Interval: 4, Population: 4, Quantile: 0.34,
	}}}
}

// versions returns the versions of the server and its nodes from the API.
func (c *cluster) versions(t *testing.T) map[string]string {
	t.Helper()
	info, err := c.GetServerInfo(t.Context(), &outbidv1.GetServerInfoRequest{})
	if err != nil {
		t.Fatal(err)
	}
	nodes, err := c.ListNodes(t.Context(), &outbidv1.ListNodesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{"server": info.GetVersion()}
	for _, n := range nodes.GetNodes() {
		found[n.GetInfo().GetName()] = n.GetInfo().GetVersion()
	}
	return found
}

// mustNotRestart fails if a trial had to start again.
func mustNotRestart(t *testing.T, c *cluster, sweeps ...string) {
	t.Helper()
	for _, id := range sweeps {
		for _, trial := range c.trials(id) {
			if trial.GetRestarts() != 0 {
				t.Errorf("trial %d of %s was restarted %d times", trial.GetNumber(), id, trial.GetRestarts())
			}
		}
	}
}

// upgradeUnderASweep replaces the server by another build while trials train, and by the first build again if that
// writes ledgers of today's format: it would refuse a newer one. The sweep must end as it does without that.
func upgradeUnderASweep(t *testing.T, before, after string) {
	t.Helper()
	c := newCluster(withBinary{t, before})
	c.t = withBinary{t, before}
	c.worker("a", "cpu:2", "")
	var format uint32
	c.events(func(e *outbidv1.Event) { format = max(format, e.GetOrchestratorStarted().GetFormat()) })
	calm := c.outcome(c.submit(job{name: "calm", mode: "well", tuner: hyperband(9)}.spec(t, c.locks)))
	id := c.submit(job{name: "rough", mode: "well", tuner: hyperband(9), env: map[string]string{"PACE": "100ms"}}.spec(t, c.locks))

	replace := func(steps int64, build string) {
		t.Helper()
		c.waitSteps(id, steps)
		reported := map[int32]int64{}
		for _, trial := range c.trials(id) {
			reported[trial.GetNumber()] = max(trial.GetStep(), trial.GetLast().GetStep())
		}
		c.stop()
		c.t = withBinary{t, build}
		c.restart()
		for _, trial := range c.trials(id) {
			if got := max(trial.GetStep(), trial.GetLast().GetStep()); got < reported[trial.GetNumber()] {
				t.Errorf("trial %d had reported step %d and is back at %d", trial.GetNumber(), reported[trial.GetNumber()], got)
			}
		}
		if got := c.versions(t)["server"]; !strings.HasPrefix(got, versionOf(t, build)) {
			t.Errorf("the server has version %s", got)
		}
		if c.sweep(id).GetState() >= outbidv1.SweepState_SWEEP_STATE_DONE {
			t.Error("the sweep ended before the server was replaced")
		}
	}
	replace(10, after)
	if format == state.Format {
		replace(25, before)
	}
	if rough := c.outcome(id); rough != calm {
		t.Errorf("the upgrade changed the outcome:\n%s\nwithout:\n%s", rough, calm)
	}
	mustNotRestart(t, c, id)
	noTwoOwners(t, c.locks)
}

// refusedAcross checks that a worker of another major version ends and says why.
func refusedAcross(t *testing.T, server, worker string) {
	t.Helper()
	c := newCluster(withBinary{t, server})
	c.t = withBinary{t, worker}
	p := c.worker("a", "cpu:2", "")
	select {
	case <-p.ended:
	case <-time.After(patience):
		t.Fatal("the worker runs")
	}
	text, _ := p.out.text()
	says := fmt.Sprintf("the server refuses this worker: the server has version %s", versionOf(t, server))
	for _, want := range []string{
		says, "and this worker " + versionOf(t, worker),
		"they must have the same major version; install the server's version of outbid on this machine",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the worker does not say %q:\n%s", want, text)
		}
	}
	if code := p.cmd.ProcessState.ExitCode(); code != 1 {
		t.Errorf("the worker ended with exit code %d", code)
	}
	if got := c.versions(t); len(got) != 1 {
		t.Errorf("the server has admitted a node: %v", got)
	}
}
