package control_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/outbid-dev/outbid/orchestrator/control"
	"github.com/outbid-dev/outbid/orchestrator/sim"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// order does what an administrator asks of a node.
func (b *bench) order(node string, command outbidv1.NodeCommand) {
	b.step(control.ControlNode{Node: node, Command: command, Reason: "a fan", Actor: "ann", Done: func(err error) {
		if err != nil {
			b.tb.Fatal(err)
		}
	}})
}

func (b *bench) running() int { return len(b.core.State().Sweeps["s-1"].Running) }

// A cordoned node gets no new trials, whatever else happens to it, until it is opened.
func TestACordonedNodeGetsNoNewTrials(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1, sim.Sweep("s", "min", 3, sim.Tuner("random", map[string]int64{"max_steps": 9})))
	b.order("n1", outbidv1.NodeCommand_NODE_COMMAND_CORDON)
	if b.running() != 1 {
		t.Fatalf("%d trials run: a cordon ends none", b.running())
	}
	b.join("n2", 1)
	b.order("n2", outbidv1.NodeCommand_NODE_COMMAND_DRAIN)
	if b.running() != 2 { // it was given one when it joined
		t.Fatalf("%d trials run", b.running())
	}
	lease := b.core.State().Nodes["n2"].Leases[0]
	if lease.Revoking != outbidv1.RevokeKind_REVOKE_KIND_PAUSE {
		t.Errorf("the trial on a drained node is asked for %s", lease.Revoking)
	}
	info := &outbidv1.NodeInfo{Name: "n2", Boot: "again", Devices: []*outbidv1.Device{{Type: "cpu"}}}
	b.step(control.Uplink{Message: &outbidv1.Uplink{Node: "n2", Boot: "b", Leaving: true}}) // its worker restarts
	b.step(control.Uplink{Message: &outbidv1.Uplink{Node: "n2", Boot: "again", Info: info}})
	if n := b.core.State().Nodes["n2"]; n.Info.GetBoot() != "again" {
		t.Fatalf("its boot is %s", n.Info.GetBoot())
	}
	if n := b.core.State().Nodes["n2"]; len(n.Leases) > 0 || n.Manual().GetReason() != "a fan" || n.Manual().GetActor() != "ann" || !n.Manual().GetDrained() {
		t.Errorf("after a restart %d leases, closed by %v", len(n.Leases), n.Manual())
	}
	b.order("n2", outbidv1.NodeCommand_NODE_COMMAND_CORDON)
	if !b.core.State().Nodes["n2"].Manual().GetDrained() {
		t.Error("a cordon undid a drain")
	}
	b.order("n2", outbidv1.NodeCommand_NODE_COMMAND_UNCORDON)
	if n := b.core.State().Nodes["n2"]; len(n.Faults) > 0 || len(n.Leases) != 1 {
		t.Errorf("opened, it has %d leases and faults %v", len(n.Leases), n.Faults)
	}
}

// The trials of a node that is evicted end without saving, also those that were asked to save, and continue elsewhere.
func TestEvictionEndsTrialsThatDoNotSave(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1, sim.Sweep("s", "min", 1, sim.Tuner("random", map[string]int64{"max_steps": 9})))
	b.order("n1", outbidv1.NodeCommand_NODE_COMMAND_DRAIN)
	lease := b.core.State().Nodes["n1"].Leases[0]
	if lease.Revoking != outbidv1.RevokeKind_REVOKE_KIND_PAUSE {
		t.Fatalf("the trial on a drained node is asked for %s", lease.Revoking)
	}
	b.order("n1", outbidv1.NodeCommand_NODE_COMMAND_EVICT)
	if lease.Revoking != outbidv1.RevokeKind_REVOKE_KIND_STOP || !b.core.State().Nodes["n1"].Manual().GetDrained() {
		t.Fatalf("the trial on an evicted node is asked for %s", lease.Revoking)
	}
	b.join("n2", 1)
	f := b.forks[lease.ID]
	delete(b.forks, lease.ID)
	b.say([]*outbidv1.UplinkMessage{{Fork: f, Kind: &outbidv1.UplinkMessage_Ended{Ended: &outbidv1.ForkEnded{
		Outcome: outbidv1.ForkOutcome_FORK_OUTCOME_ORDERED,
	}}}})
	if n := b.core.State().Nodes["n2"]; len(n.Leases) != 1 || n.Leases[0].Trial != lease.Trial {
		t.Errorf("the other node has the leases %v", n.Leases)
	}
}

// A node that an administrator opens starts without faults, except those that its worker reports.
func TestOpeningANodeForgetsItsFailures(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1, sim.Sweep("s", "min", 1, sim.Tuner("random", map[string]int64{"max_steps": 9})))
	b.join("n2", 1)
	for _, f := range []*outbidv1.NodeFault{{Reason: "full", Unfit: true}, {Reason: "no program", Cordoned: true, Times: 3}, {Reason: "fails", AfterStart: true, Times: 1}} {
		event := &outbidv1.Event{Kind: &outbidv1.Event_NodeFaulted{NodeFaulted: &outbidv1.NodeFaulted{Node: "n2", Fault: f}}}
		if _, err := b.core.State().Fold(b.now, event); err != nil {
			t.Fatal(err)
		}
	}
	b.order("n2", outbidv1.NodeCommand_NODE_COMMAND_DRAIN)
	b.order("n2", outbidv1.NodeCommand_NODE_COMMAND_UNCORDON)
	if n := b.core.State().Nodes["n2"]; len(n.Faults) != 1 || n.Unfit() == nil {
		t.Errorf("its faults are %v", n.Faults)
	}
}

// The trials of a node whose worker says that it ends soon save and continue elsewhere. It gets no others until the worker
// says otherwise, and what it said is forgotten when it leaves.
func TestANodeThatEndsSoon(t *testing.T) {
	t.Parallel()
	b := newBench(t, 2, sim.Sweep("s", "min", 3, sim.Tuner("random", map[string]int64{"max_steps": 9})))
	n1 := b.core.State().Nodes["n1"]
	says := func(h *outbidv1.NodeHealth) {
		up := &outbidv1.Uplink{Node: "n1", Boot: "b1", Health: h}
		for leaseID, f := range b.forks {
			up.Forks = append(up.Forks, &outbidv1.ForkStatus{Fork: f, Version: leaseID})
		}
		b.step(control.Uplink{Message: up})
	}
	says(&outbidv1.NodeHealth{Unfit: []string{"disk: full"}, Check: 1})
	for _, l := range n1.Leases {
		if l.Revoking != outbidv1.RevokeKind_REVOKE_KIND_UNSPECIFIED {
			t.Fatalf("the trials of an unfit node are asked for %s", l.Revoking)
		}
	}
	ending := &outbidv1.NodeHealth{Unfit: []string{"spot notice: terminate", "disk: full"}, Check: 1, Ending: true}
	says(ending)
	events := b.core.State().Seq
	says(ending)
	if b.core.State().Seq != events {
		t.Error("the same notice had an effect twice")
	}
	if f := n1.Unfit(); !f.GetDrained() || f.GetReason() != "spot notice: terminate (and 1 more)" || state.FaultWord(f, b.now) != "drained" {
		t.Errorf("its fault is %v", f)
	}
	b.join("n2", 2)
	for _, l := range slices.Clone(n1.Leases) {
		if l.Revoking != outbidv1.RevokeKind_REVOKE_KIND_PAUSE {
			t.Fatalf("the trials are asked for %s", l.Revoking)
		}
		f := b.forks[l.ID]
		delete(b.forks, l.ID)
		b.say([]*outbidv1.UplinkMessage{{Fork: f, Kind: &outbidv1.UplinkMessage_Ended{Ended: &outbidv1.ForkEnded{
			Outcome: outbidv1.ForkOutcome_FORK_OUTCOME_ORDERED,
		}}}})
	}
	if n2 := b.core.State().Nodes["n2"]; len(n1.Leases) != 0 || len(n2.Leases) != 2 {
		t.Errorf("%d leases there and %d on the other node", len(n1.Leases), len(n2.Leases))
	}
	says(&outbidv1.NodeHealth{Check: 2})
	if len(n1.Faults) != 0 || len(n1.Leases) != 1 {
		t.Errorf("after the notice was withdrawn it has %d leases and faults %v", len(n1.Leases), n1.Faults)
	}
	says(ending)
	b.step(control.Uplink{Message: &outbidv1.Uplink{Node: "n1", Boot: "b1", Leaving: true}})
	if n1 := b.core.State().Nodes["n1"]; n1.State != outbidv1.NodeState_NODE_STATE_LEFT || len(n1.Faults) != 0 {
		t.Errorf("after it left: %s, %v", n1.State, n1.Faults)
	}
}

func TestOrdersForNodesThatDoNotExist(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1, sim.Sweep("s", "min", 1, sim.Tuner("random", map[string]int64{"max_steps": 9})))
	for want, in := range map[error]control.ControlNode{
		state.ErrNotFound: {Node: "attic", Command: outbidv1.NodeCommand_NODE_COMMAND_CORDON},
		state.ErrInvalid:  {Node: "n1", Command: 9},
	} {
		in.Done = func(err error) {
			if !errors.Is(err, want) {
				t.Errorf("%v, want %v", err, want)
			}
		}
		b.step(in)
	}
}
