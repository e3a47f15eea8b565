package control_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/control"
	"github.com/outbid-dev/outbid/orchestrator/ledger"
	"github.com/outbid-dev/outbid/orchestrator/objects"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/sim"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// forking grants each waiting job a device of every node, as its forks.
type forking struct{ seen *[]string }

func (forking) Name() string              { return "forking" }
func (forking) Snapshot() ([]byte, error) { return nil, nil }
func (forking) Restore([]byte) error      { return nil }

func (p forking) Decide(v *policy.View) policy.Plan {
	var plan policy.Plan
	for _, a := range v.Apps {
		for _, j := range a.Jobs {
			*p.seen = append(*p.seen, fmt.Sprintf("%d holds %v, of them %v", j.Trial, j.Gangs, j.Gang()))
			if !j.Waiting() {
				continue
			}
			for n := range v.Nodes {
				g := cluster.Gang{{Node: n, Devices: []int{0}}}
				if v.Free.IsFree(g) {
					plan.Grants = append(plan.Grants, policy.Grant{Job: j, Gang: g, Fork: len(plan.Grants) > 0, Reason: "a fork on each node"})
				}
			}
			return plan
		}
	}
	return plan
}

// forkedCluster is a core with two nodes that train the only trial.
type forkedCluster struct {
	t     *testing.T
	core  *control.Core
	led   *ledger.Memory
	now   time.Time
	seq   map[string]uint64
	forks map[string][]*outbidv1.ForkRef
	told  map[string][]*outbidv1.Assignment
	// merges are the averages that each node was last ordered to compute.
	merges map[string][]*outbidv1.Consolidation
	seen   []string
	// deleted are the objects that are no longer needed.
	deleted []string
}

func newForkedCluster(t *testing.T) *forkedCluster {
	t.Helper()
	return newClusterOf(t, func(seen *[]string) policy.Policy { return forking{seen} }, 9)
}

func newClusterOf(t *testing.T, p func(*[]string) policy.Policy, steps int64, merge ...string) *forkedCluster {
	t.Helper()
	c := &forkedCluster{
		t: t, led: ledger.NewMemory(), now: time.Unix(1_700_000_000, 0).UTC(), seq: map[string]uint64{"a": 1, "b": 1},
		forks: map[string][]*outbidv1.ForkRef{}, told: map[string][]*outbidv1.Assignment{},
		merges: map[string][]*outbidv1.Consolidation{},
	}
	c.core = control.NewCore(settings(), p(&c.seen), state.New())
	for _, node := range []string{"a", "b"} {
		c.step(control.Uplink{Message: &outbidv1.Uplink{Node: node, Boot: node + "1", Info: &outbidv1.NodeInfo{
			Devices: []*outbidv1.Device{{Type: "gpu"}},
		}}})
	}
	spec := sim.Sweep("s", "min", 1, sim.Tuner("random", map[string]int64{"max_steps": steps}))
	spec.MaxRestarts = new(int32(9))
	if len(merge) > 0 {
		spec.Resources.Forks, spec.Resources.ForksMerge = "auto", merge[0]
	}
	c.step(control.Submit{Spec: spec, Done: func(_ string, err error) {
		if err != nil {
			t.Fatal(err)
		}
	}})
	return c
}

func (c *forkedCluster) step(inputs ...control.Input) []*outbidv1.Event {
	c.t.Helper()
	c.now = c.now.Add(100 * time.Millisecond)
	out, err := c.core.Step(c.now, inputs...)
	if err != nil {
		c.t.Fatal(err)
	}
	if len(out.Events) > 0 {
		batch, err := c.led.Append(context.Background(), c.now, out.Events)
		if err != nil {
			c.t.Fatal(err)
		}
		c.core.Appended(batch)
	}
	for _, r := range out.Replies {
		r()
	}
	c.deleted = append(c.deleted, out.Delete...)
	for _, o := range out.Orders {
		c.told[o.GetNode()] = o.GetAssignments()
		c.merges[o.GetNode()] = o.GetConsolidations()
		for _, a := range o.GetAssignments() {
			same := func(f *outbidv1.ForkRef) bool { return f.GetLeaseId() == a.GetFork().GetLeaseId() }
			if !slices.ContainsFunc(c.forks[o.GetNode()], same) {
				c.forks[o.GetNode()] = append(c.forks[o.GetNode()], a.GetFork())
			}
		}
	}
	if err := sim.Check(c.core.State()); err != nil {
		c.t.Fatal(err)
	}
	c.keepsWhatIsNeeded()
	return out.Events
}

// say sends messages as a node, and returns the decisions.
func (c *forkedCluster) say(node string, messages ...*outbidv1.UplinkMessage) []*outbidv1.Event {
	c.t.Helper()
	up := &outbidv1.Uplink{Node: node, Boot: node + "1", FirstSeq: c.seq[node], Messages: messages}
	for _, f := range c.forks[node] {
		up.Forks = append(up.Forks, &outbidv1.ForkStatus{Fork: f, Version: 1})
	}
	c.seq[node] += uint64(len(messages))
	return c.step(control.Uplink{Message: up})
}

func (c *forkedCluster) trial() *state.Trial { return c.core.State().Sweeps["s-1"].Trials[0] }

// expect compares the trial's leases and the progress of its forks.
func (c *forkedCluster) expect(want string) {
	c.t.Helper()
	var got []string
	for _, l := range c.trial().Leases {
		got = append(got, fmt.Sprintf("%d on %s at %d", l.ID, l.Rank0(), l.Step))
	}
	if text := state.TrialWord(c.trial().State) + ": " + strings.Join(got, ", "); text != want {
		c.t.Fatalf("it is %s, want %s", text, want)
	}
}

func begins(f *outbidv1.ForkRef, step int64) *outbidv1.UplinkMessage {
	return &outbidv1.UplinkMessage{Fork: f, Kind: &outbidv1.UplinkMessage_Began{Began: &outbidv1.ForkBegan{FromStep: step}}}
}

func endsFork(f *outbidv1.ForkRef, how outbidv1.ForkOutcome, step int64) *outbidv1.UplinkMessage {
	return &outbidv1.UplinkMessage{Fork: f, Kind: &outbidv1.UplinkMessage_Ended{Ended: &outbidv1.ForkEnded{
		Outcome: how, Step: step, Failure: outbidv1.FailureKind_FAILURE_KIND_ERROR, Detail: "exit code 1",
	}}}
}

func saves(f *outbidv1.ForkRef, step int64) *outbidv1.UplinkMessage {
	return &outbidv1.UplinkMessage{Fork: f, Kind: &outbidv1.UplinkMessage_Saved{Saved: &outbidv1.Checkpoint{
		Key:  objects.Checkpoint{Sweep: f.GetSweep(), Trial: f.GetTrial(), Step: step, LeaseID: f.GetLeaseId(), Format: objects.Opaque}.Key(),
		Step: step,
	}}}
}

// A plan that grants a trial two leases makes two forks on two nodes train it, each with its own lease.
func TestATrialHoldsTwoLeases(t *testing.T) {
	t.Parallel()
	c := newForkedCluster(t)
	c.expect("running: 1 on a at 0, 2 on b at 0")
	a, b := c.forks["a"], c.forks["b"]
	if len(a) != 1 || len(b) != 1 || a[0].GetLeaseId() != 1 || b[0].GetLeaseId() != 2 {
		t.Fatalf("a was told of %v, b of %v", a, b)
	}
	c.say("a", begins(a[0], 0), report(a[0], 1, 1))
	c.say("b", begins(b[0], 0), report(b[0], 1, 1), report(b[0], 2, 2))
	// A node cannot report for the other's fork.
	c.say("a", report(b[0], 3, 7), saves(b[0], 7))
	c.say("b", report(a[0], 3, 7), saves(a[0], 7))
	c.expect("running: 1 on a at 1, 2 on b at 2")
	c.say("b", saves(b[0], 2))
	c.say("a", saves(a[0], 1))
	if tr := c.trial(); tr.Step != 1 || tr.From().GetLeaseId() != 1 || tr.SavedBy(tr.Held(2)).GetStep() != 2 {
		t.Errorf("it is at step %d, and goes on from %v", tr.Step, tr.From())
	}
	if got := c.seen[len(c.seen)-1]; got != "0 holds [[{0 [0]}] [{1 [0]}]], of them [{0 [0]}]" {
		t.Errorf("the policy sees that %s", got)
	}
	// A restart restores both.
	again, err := control.Restore(t.Context(), settings(), forking{new([]string)}, c.led.Another(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if tr := again.State().Sweeps["s-1"].Trials[0]; len(tr.Leases) != 2 || tr.Held(2).Step != 2 || tr.Held(1).Step != 1 {
		t.Errorf("after a restart it holds %v", tr.Leases)
	}
}

// The loss of a node ends only the lease on it, whether it is the leading one or not. Later messages of the node are
// ignored.
func TestALostNodeEndsTheLeaseOnItOnly(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ lost, left, before, after string }{
		"of one that follows": {"b", "a", "running: 1 on a at 2", "running: 1 on a at 3"},
		"of the lead":         {"a", "b", "running: 2 on b at 2", "running: 2 on b at 3"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newForkedCluster(t)
			fork := map[string]*outbidv1.ForkRef{"a": c.forks["a"][0], "b": c.forks["b"][0]}
			for _, node := range []string{"a", "b"} {
				c.say(node, begins(fork[node], 0), report(fork[node], 1, 1), report(fork[node], 2, 2))
			}
			for range 20 { // only the other node is seen
				c.now = c.now.Add(time.Second)
				c.say(tc.left)
				c.step(control.Tick{})
			}
			c.expect(tc.before)
			if n := c.core.State().Nodes[tc.lost]; state.NodeWord(n.State) != "lost" || len(n.Leases) != 0 {
				t.Errorf("node %s is %s with %d leases", tc.lost, state.NodeWord(n.State), len(n.Leases))
			}
			c.say(tc.lost, report(fork[tc.lost], 3, 8), saves(fork[tc.lost], 8))
			c.expect(tc.before)
			c.say(tc.left, report(fork[tc.left], 3, 3))
			c.expect(tc.after)
			if tr := c.trial(); tr.Step != 3 || len(tr.Checkpoints) != 0 {
				t.Errorf("it is at step %d with %v", tr.Step, tr.Checkpoints)
			}
		})
	}
}

// Forks fail and end independently. Orders for a trial are sent under each of its leases.
func TestForksEndOnTheirOwn(t *testing.T) {
	t.Parallel()
	c := newForkedCluster(t)
	a, b := c.forks["a"][0], c.forks["b"][0]
	c.say("a", begins(a, 0), report(a, 1, 1))
	c.say("b", begins(b, 0), report(b, 1, 1))
	c.say("b", endsFork(b, outbidv1.ForkOutcome_FORK_OUTCOME_FAILED, 1))
	c.expect("running: 1 on a at 1")
	if tr := c.trial(); tr.Restarts != 1 {
		t.Errorf("%d restarts", tr.Restarts)
	}
	c.say("a", report(a, 2, 9), saves(a, 9), &outbidv1.UplinkMessage{
		Fork: a, Kind: &outbidv1.UplinkMessage_Reached{Reached: &outbidv1.ForkReached{Step: 9}},
	})
	if tr := c.trial(); state.TrialWord(tr.State) != "completed" {
		t.Errorf("it is %s", state.TrialWord(tr.State))
	}
}

// When the trial ends, all of its forks are ended, each under its own lease.
func TestTheEndOfATrialEndsItsForks(t *testing.T) {
	t.Parallel()
	c := newForkedCluster(t)
	a, b := c.forks["a"][0], c.forks["b"][0]
	c.say("b", begins(b, 0), report(b, 1, 9), &outbidv1.UplinkMessage{
		Fork: b, Kind: &outbidv1.UplinkMessage_Reached{Reached: &outbidv1.ForkReached{Step: 9}},
	})
	c.expect("running: 1 on a at 0, 2 on b at 9") // it waits for the leading fork
	c.say("a", begins(a, 0), report(a, 1, 9), &outbidv1.UplinkMessage{
		Fork: a, Kind: &outbidv1.UplinkMessage_Reached{Reached: &outbidv1.ForkReached{Step: 9}},
	})
	c.expect("completed: 1 on a at 9, 2 on b at 9")
	for _, node := range []string{"a", "b"} {
		if told := c.told[node]; len(told) != 1 || told[0].GetVerdict() == outbidv1.Verdict_VERDICT_TRAIN {
			t.Errorf("%s is told %v", node, told)
		}
	}
	c.say("a", endsFork(a, outbidv1.ForkOutcome_FORK_OUTCOME_ORDERED, 9))
	c.expect("completed: 2 on b at 9")
	c.say("b", endsFork(b, outbidv1.ForkOutcome_FORK_OUTCOME_ORDERED, 9))
	c.expect("completed: ")
	if s := c.core.State().Sweeps["s-1"]; state.SweepWord(s.State) != "done" {
		t.Errorf("the sweep is %s", state.SweepWord(s.State))
	}
}
