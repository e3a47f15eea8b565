package sim_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/lab"
	"github.com/outbid-dev/outbid/orchestrator/policy/registry"
	"github.com/outbid-dev/outbid/orchestrator/sim"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

const (
	byNode  = outbidv1.FailureKind_FAILURE_KIND_NODE
	byStart = outbidv1.FailureKind_FAILURE_KIND_START
	byError = outbidv1.FailureKind_FAILURE_KIND_ERROR
)

// badWorld returns a cluster of three nodes with six devices, some of them bad, and sweeps with their trials.
func badWorld(t *testing.T, name string, bad []sim.BadNode, restarts int32, sweeps ...string) *sim.World {
	t.Helper()
	w := newWorld(t, sim.Setup{Seed: 1, Model: sim.Steps{Time: 2 * time.Second}, Bad: bad}, name)
	w.AddNode("a", "v100", 3, 1)
	w.AddNode("b", "v100", 2, 1)
	w.AddNode("c", "v100", 1, 1)
	for _, s := range sweeps {
		spec := sim.Sweep(s, "min", 12, sim.Tuner("random", map[string]int64{"max_steps": 40}))
		spec.MaxRestarts = new(restarts)
		if _, err := w.Submit(spec); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// pass lets time pass.
func pass(t *testing.T, w *sim.World, d time.Duration) {
	t.Helper()
	if err := w.RunUntil(w.Now().Add(d)); err != nil {
		t.Fatal(err)
	}
}

// completed fails unless every trial of a sweep completed with at most this many restarts.
func completed(t *testing.T, w *sim.World, sweep string, restarts int32) {
	t.Helper()
	s := w.State().Sweeps[sweep]
	if len(s.Trials) != 12 || s.State != outbidv1.SweepState_SWEEP_STATE_DONE {
		t.Errorf("sweep %s is %s with %d trials: %s", sweep, state.SweepWord(s.State), len(s.Trials), s.Reason)
	}
	for _, trial := range s.Trials {
		if trial.State != outbidv1.TrialState_TRIAL_STATE_COMPLETED || trial.Restarts > restarts {
			t.Errorf("trial %d of %s is %s after %d restarts: %s", trial.Number, sweep, state.TrialWord(trial.State), trial.Restarts, trial.Reason)
		}
	}
}

// Nodes that cannot start trials cost a trial nothing while another node can run it, and nodes that end trials cost a
// restart each. Each policy of the product meets every kind of bad node, each other policy two kinds in turn;
// OUTBID_SEEDS=2 or more makes every policy meet all.
func TestBadNodesFailNoTrial(t *testing.T) {
	t.Parallel()
	kinds := map[string][]sim.BadNode{
		"full disk":               {{Node: "b", How: byNode}},
		"full disks":              {{Node: "b", How: byNode}, {Node: "a", How: byNode, To: 7 * time.Minute}},
		"full disks everywhere":   {{Node: "a", How: byNode, To: time.Minute}, {Node: "b", How: byNode, To: 2 * time.Minute}, {Node: "c", How: byNode}},
		"program missing":         {{Node: "a", How: byStart}, {Node: "c", How: byStart}},
		"program missing for one": {{Node: "a", How: byStart, Sweep: "one-1"}},
		"disk and program":        {{Node: "a", How: byNode}, {Node: "b", How: byStart}},
		"ends trials":             {{Node: "b", How: byError}},
	}
	product, few := registry.Product().Names(), timesAsMany(t, 1) == 1
	for i, name := range lab.Policies().Names() {
		for k, kind := range slices.Sorted(maps.Keys(kinds)) {
			if few && !slices.Contains(product, name) && (2*i+k)%len(kinds) > 1 {
				continue
			}
			bad := kinds[kind]
			t.Run(name+" "+kind, func(t *testing.T) {
				t.Parallel()
				restarts := int32(0)
				if bad[0].How == byError {
					restarts = 1
				}
				w := badWorld(t, name, bad, restarts, "one", "two")
				if err := w.Run(24 * time.Hour); err != nil {
					t.Fatal(err)
				}
				completed(t, w, "one-1", restarts)
				completed(t, w, "two-1", restarts)
				decidesTheSame(t, w, name)
			})
		}
	}
}

// A node that cannot start trials is avoided, longer each time, and cordoned. Once it is repaired, the next trial that
// starts there readmits it.
func TestABadNodeIsCordonedAndReadmitted(t *testing.T) {
	t.Parallel()
	w := badWorld(t, "drf", []sim.BadNode{{Node: "a", How: byNode, To: 5 * time.Minute}}, 0, "one", "two", "three", "four", "five", "six", "seven")
	fault := func(after time.Duration) *outbidv1.NodeFault {
		t.Helper()
		pass(t, w, after)
		return w.State().Nodes["a"].Fault("")
	}
	if f := fault(time.Second); f.GetTimes() != 1 || f.GetCordoned() || len(f.GetTrials()) < 2 || !strings.Contains(f.GetReason(), "the node is bad") {
		t.Errorf("after a second: %v", f)
	}
	if f := fault(50 * time.Second); f.GetTimes() != 3 || !f.GetCordoned() {
		t.Errorf("after 51 seconds: %v", f)
	}
	if f := fault(8 * time.Minute); f != nil {
		t.Errorf("after it was mended: %v", f)
	}
	if n := w.State().Nodes["a"]; len(n.Leases) == 0 {
		t.Error("nothing runs there")
	}
}

// A program that only one team's sweep misses on a node keeps only that sweep off the node.
func TestAMissingProgramKeepsOffItsSweepAlone(t *testing.T) {
	t.Parallel()
	w := badWorld(t, "drf", []sim.BadNode{{Node: "a", How: byStart, Sweep: "one-1"}}, 0, "one", "two")
	pass(t, w, 30*time.Second)
	n := w.State().Nodes["a"]
	if n.Fault("") != nil || n.Fault("one-1") == nil || n.KeepsOff(w.State().Time) != nil {
		t.Errorf("faults %v", n.Faults)
	}
	for _, l := range n.Leases {
		if l.Sweep != "two-1" {
			t.Errorf("a trial of %s runs there", l.Sweep)
		}
	}
	if len(n.Leases) == 0 {
		t.Error("no trial runs there")
	}
}

// A program that is missing everywhere fails its sweep soon, with the reason, and does not affect other sweeps.
func TestAMissingProgramEverywhereFailsItsSweep(t *testing.T) {
	t.Parallel()
	w := badWorld(t, "drf", []sim.BadNode{
		{Node: "a", How: byStart, Sweep: "one-1"}, {Node: "b", How: byStart, Sweep: "one-1"}, {Node: "c", How: byStart, Sweep: "one-1"},
	}, 3, "one", "two")
	pass(t, w, 10*time.Second)
	s := w.State().Sweeps["one-1"]
	if s.State != outbidv1.SweepState_SWEEP_STATE_FAILED || !strings.Contains(s.Reason, "the node is bad") {
		t.Errorf("it is %s: %s", state.SweepWord(s.State), s.Reason)
	}
	for _, n := range w.State().Nodes {
		if len(n.Faults) > 0 {
			t.Errorf("node %s has faults %v", n.Info.GetName(), n.Faults)
		}
	}
	if err := w.Run(time.Hour); err != nil {
		t.Fatal(err)
	}
	completed(t, w, "two-1", 0)
}

// A node on which trials start and fail is identified by trials that get further elsewhere: soon no trial is sent
// there.
func TestANodeThatEndsTrialsIsFoundOut(t *testing.T) {
	t.Parallel()
	w := badWorld(t, "drf", []sim.BadNode{{Node: "a", How: byError, To: 20 * time.Minute}}, 1, "one", "two", "three", "four")
	pass(t, w, time.Minute)
	if f := w.State().Nodes["a"].AfterStart("two-1"); f.GetTimes() == 0 || len(f.GetTrials()) < 2 || !strings.Contains(f.GetReason(), "elsewhere") {
		t.Errorf("after a minute: %v", f)
	}
	if err := w.Run(24 * time.Hour); err != nil {
		t.Fatal(err)
	}
	restarted := 0
	for _, s := range []string{"one-1", "two-1", "three-1", "four-1"} {
		completed(t, w, s, 1)
		for _, trial := range w.State().Sweeps[s].Trials {
			restarted += int(trial.Restarts)
		}
	}
	if restarted > 24 {
		t.Errorf("%d of 48 trials were restarted", restarted)
	}
	decidesTheSame(t, w, "drf")
}
