package endtoend

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// badNode is a cause for which a node cannot start trials.
type badNode struct {
	// wrap returns the command that wraps the worker, given its directory and that of the program; args are further
	// arguments.
	wrap func(t *testing.T, dir, programs string) []string
	args []string
	// spoil breaks the node after it has joined, and mend repairs it.
	spoil, mend func(t *testing.T, p *proc, dir string)
	// reason is the expected reason. ofTrials is set if trials find the fault instead of the worker's checks.
	reason   string
	ofTrials bool
}

// TestABadNodeFailsNoTrial (B3) checks that a node that cannot start trials does not fail a trial while another node
// can run it, that its reason is shown, and that it gets trials again after the repair.
func TestABadNodeFailsNoTrial(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can break a worker's disk and take its descriptors")
	}
	for name, bad := range map[string]badNode{
		"the disk is full": {
			wrap: func(t *testing.T, dir, _ string) []string { return smallDisk(t, dir, 32<<20) }, args: []string{"--disk-margin", "8MiB"},
			spoil: func(t *testing.T, p *proc, dir string) {
				if err := os.WriteFile(p.inside(filepath.Join(dir, "filler")), make([]byte, 64<<20), 0o600); err == nil {
					t.Fatal("64 MiB fit on a disk of 32 MiB")
				}
			},
			mend: func(t *testing.T, p *proc, dir string) {
				if err := os.Remove(p.inside(filepath.Join(dir, "filler"))); err != nil {
					t.Fatal(err)
				}
			},
			reason: "less than 8.0 MiB are free",
		},
		"no descriptor is free": {
			spoil: func(t *testing.T, p *proc, _ string) {
				open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.cmd.Process.Pid))
				if err != nil {
					t.Fatal(err)
				}
				limitFiles(t, p, uint64(len(open)))
			},
			mend:   func(t *testing.T, p *proc, _ string) { limitFiles(t, p, 1024) },
			reason: "too many open files",
		},
		"the program is missing": {
			wrap:   func(t *testing.T, _, programs string) []string { return smallDisk(t, programs, 1<<20) },
			reason: "does not exist on this node (node bad)", ofTrials: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bad.try(t)
		})
	}
}

func limitFiles(t *testing.T, p *proc, n uint64) {
	t.Helper()
	var old unix.Rlimit
	if err := unix.Prlimit(p.cmd.Process.Pid, syscall.RLIMIT_NOFILE, nil, &old); err != nil {
		t.Fatal(err)
	}
	if err := unix.Prlimit(p.cmd.Process.Pid, syscall.RLIMIT_NOFILE, &unix.Rlimit{Cur: n, Max: old.Max}, nil); err != nil {
		t.Fatal(err)
	}
}

// badCluster is a server with a good and a bad worker.
type badCluster struct {
	*server
	dir, programs string
}

func (bad badNode) try(t *testing.T) {
	dir := t.TempDir()
	c := &badCluster{server: serve(t, dir, "serve", "--policy", "drf"), dir: dir, programs: filepath.Join(dir, "programs")}
	work := filepath.Join(dir, "bad")
	for _, d := range []string{c.programs, work} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	script := "#!/bin/sh\nfor i in 1 2 3; do echo '{\"step\": '$i', \"loss\": '$i'}' >> $OUTBID_REPORT; done\n"
	if err := os.WriteFile(filepath.Join(c.programs, "train"), []byte(script), 0o700); err != nil { //nolint:gosec // it is run
		t.Fatal(err)
	}
	args := append([]string{
		"worker", "--nats", c.Info.NATS, "--keys", c.Info.Keys, "--name", "bad", "--devices", "cpu:4", "--dir", work,
	}, bad.args...)
	start(t, dir, "worker", "--nats", c.Info.NATS, "--keys", c.Info.Keys, "--name", "good", "--devices", "cpu:3", "--dir", filepath.Join(dir, "good"))
	healthy := containOn(t, dir, c.server)
	var p *proc
	if bad.wrap != nil {
		p = startIn(t, dir, bad.wrap(t, work, c.programs), nil, args...)
	} else {
		p = start(t, dir, args...)
	}
	poll(t, "both nodes", func() bool { return len(c.nodes()) == 2 })
	if bad.spoil != nil {
		bad.spoil(t, p, work)
	}
	noted := c.runsAll("one", "two")
	if bad.ofTrials { // its faults end with their sweeps
		if !strings.Contains(noted, bad.reason) {
			t.Errorf("the sweeps' notes do not say %q:\n%s", bad.reason, noted)
		}
		healthy.stillTrains()
		c.stop()
		return
	}
	poll(t, "the fault of the node", func() bool { return strings.Contains(c.fault("bad"), bad.reason) })
	if text := c.fault("good"); text != "" {
		t.Errorf("the good node is kept off: %s", text)
	}
	c.isShown(bad)
	bad.mend(t, p, work)
	poll(t, "the end of the fault", func() bool { return c.fault("bad") == "" })
	c.runsAll("three")
	healthy.stillTrains()
	c.stop()
}

// runsAll runs a sweep for each tenant, and returns their notes. No trial may fail.
func (c *badCluster) runsAll(tenants ...string) string {
	c.t.Helper()
	var ids []string
	var noted strings.Builder
	for _, tenant := range tenants {
		spec := job{name: "of-" + tenant, tuner: random(3), trials: 30}.bare()
		spec.Tenant = tenant
		spec.Workload = &outbidv1.SweepSpec_Program{Program: &outbidv1.Program{Command: []string{filepath.Join(c.programs, "train")}}}
		ids = append(ids, c.submit(spec))
	}
	for _, id := range ids {
		sw := c.wait(id)
		if n := sw.GetCounts(); n.GetCompleted() != 30 || n.GetFailed() > 0 {
			c.t.Errorf("%s is %s (%s): %v", id, sw.GetState(), sw.GetReason(), n)
		}
		for _, trial := range c.trials(id) {
			if trial.GetRestarts() > 0 {
				c.t.Errorf("trial %d of %s was restarted %d times", trial.GetNumber(), id, trial.GetRestarts())
			}
		}
		for _, note := range sw.GetNotes() {
			noted.WriteString(note.GetText() + "\n")
		}
	}
	return noted.String()
}

// fault returns why a node gets no trials, or "".
func (c *badCluster) fault(node string) string {
	r, err := c.ListNodes(context.Background(), &outbidv1.ListNodesRequest{})
	if err != nil {
		c.t.Fatal(err)
	}
	var reasons []string
	for _, n := range r.GetNodes() {
		for _, f := range n.GetFaults() {
			if n.GetInfo().GetName() == node {
				reasons = append(reasons, f.GetReason())
			}
		}
	}
	return strings.Join(reasons, "; ")
}

// isShown checks what an operator sees of it.
func (c *badCluster) isShown(bad badNode) {
	c.t.Helper()
	for _, command := range []string{"nodes", "doctor"} {
		out, _ := tool(c.t, c.dir, command, "--server", c.Info.API)
		if !strings.Contains(out, bad.reason) {
			c.t.Errorf("outbid %s does not say %q:\n%s", command, bad.reason, out)
		}
	}
	s, err := scrapeMetrics(strings.TrimPrefix(c.Info.API, "http://"))
	if err != nil {
		c.t.Fatal(err)
	}
	if want := `outbid_node_kept_off{cause="unfit",node="bad"} 1`; !strings.Contains(s.text, want) {
		c.t.Errorf("%s is missing from /metrics", want)
	}
}
