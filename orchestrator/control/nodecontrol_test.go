package control_test

import (
	"errors"
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
