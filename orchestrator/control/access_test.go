package control_test

import (
	"strings"
	"testing"

	"github.com/outbid-dev/outbid/orchestrator/ledger"
	"github.com/outbid-dev/outbid/orchestrator/objects"
	"github.com/outbid-dev/outbid/orchestrator/policy/baseline"
	"github.com/outbid-dev/outbid/orchestrator/sim"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// A node can reach the objects of the leases that it holds according to the ledger, and no others.
func TestANodeReachesTheObjectsOfItsLeases(t *testing.T) {
	t.Parallel()
	l := startLoop(t, startNATS(t), &reports{})
	spec := sim.Sweep("s", "min", 2, sim.Tuner("random", map[string]int64{"max_steps": 50}))
	id, err := l.Submit(t.Context(), spec, "me", "")
	if err != nil {
		t.Fatal(err)
	}
	node := func(up *outbidv1.Uplink) *outbidv1.Orders {
		up.Node, up.Boot = "n", "b"
		l.Uplink(up)
		return <-l.orders
	}
	o := node(&outbidv1.Uplink{Info: &outbidv1.NodeInfo{Devices: []*outbidv1.Device{{Type: "gpu"}}}})
	for len(o.GetAssignments()) == 0 {
		o = node(&outbidv1.Uplink{})
	}
	fork := o.GetAssignments()[0].GetFork()
	mine := objects.Checkpoint{Sweep: id, Trial: fork.GetTrial(), Step: 3, LeaseID: fork.GetLeaseId(), Format: objects.Opaque}.Key()
	stolen := objects.Checkpoint{Sweep: "other-1", Trial: 0, Step: 3, LeaseID: fork.GetLeaseId(), Format: objects.Opaque}.Key()
	say := func(first uint64, key string) {
		node(&outbidv1.Uplink{FirstSeq: first, Messages: []*outbidv1.UplinkMessage{
			{Fork: fork, Kind: &outbidv1.UplinkMessage_Saved{Saved: &outbidv1.Checkpoint{Key: key, Step: 3}}},
		}})
	}
	check := func(name, node string, fork *outbidv1.ForkRef, key string, write, want bool) {
		t.Helper()
		err := l.MayReach(&outbidv1.AccessRequest{Node: node, Fork: fork, Key: key, Write: write, Bytes: 1})
		if (err == nil) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
	check("save its checkpoint", "n", fork, mine, true, true)
	check("read one that it has not saved yet", "n", fork, mine, false, false)
	say(1, mine)
	say(2, stolen)
	check("read its checkpoint", "n", fork, mine, false, true)
	check("read another sweep's, which it said was its own", "n", fork, stolen, false, false)
	check("save over another sweep's", "n", fork, stolen, true, false)
	check("save over another trial's", "n", fork, strings.Replace(mine, "/0/", "/1/", 1), true, false)
	check("save a function", "n", fork, objects.BlobKey(strings.Repeat("0", 64)), true, false)
	check("read a function of nobody's", "n", fork, objects.BlobKey(strings.Repeat("0", 64)), false, false)
	check("save as another node", "m", fork, mine, true, false)
	check("save under a lease that ended", "n", &outbidv1.ForkRef{Sweep: id, Trial: fork.GetTrial(), LeaseId: fork.GetLeaseId() - 1},
		objects.Checkpoint{Sweep: id, Trial: fork.GetTrial(), Step: 3, LeaseID: fork.GetLeaseId() - 1, Format: objects.Opaque}.Key(), true, false)
	check("save for a trial that does not run", "n", &outbidv1.ForkRef{Sweep: id, Trial: 99, LeaseId: fork.GetLeaseId()}, mine, true, false)
	check("save for a sweep that is not there", "n", &outbidv1.ForkRef{Sweep: "no-1", LeaseId: fork.GetLeaseId()}, mine, true, false)
	node(&outbidv1.Uplink{FirstSeq: 3, Messages: []*outbidv1.UplinkMessage{
		{Fork: fork, Kind: &outbidv1.UplinkMessage_Ended{Ended: &outbidv1.ForkEnded{Outcome: outbidv1.ForkOutcome_FORK_OUTCOME_FINISHED}}},
	}})
	check("save after the lease has ended", "n", fork, mine, true, false)
	check("read after the lease has ended", "n", fork, mine, false, false)
	trials, err := l.Trials(id, fork.GetTrial(), 1)
	if err != nil || len(trials) != 1 {
		t.Fatal(trials, err)
	}
	for _, c := range trials[0].GetCheckpoints() {
		if c.GetKey() == stolen {
			t.Error("the ledger took another sweep's object for the trial's checkpoint")
		}
	}
	l.end(t)
}

// A clone reads the checkpoint of the trial that it starts from, and no other checkpoint of that trial or of others.
func TestACloneReadsItsStart(t *testing.T) {
	t.Parallel()
	l := startLoopOn(t, ledger.NewMemory(), &reports{}, baseline.DRF{})
	spec := sim.Sweep("s", "min", 0, sim.Tuner("pbt", map[string]int64{"max_steps": 40, "trials": 8}))
	spec.Limits = nil
	id, err := l.Submit(t.Context(), spec, "me", "")
	if err != nil {
		t.Fatal(err)
	}
	info := &outbidv1.NodeInfo{Name: "n1", Boot: "b1"}
	for i := range int32(4) {
		info.Devices = append(info.Devices, &outbidv1.Device{Index: i, Type: "gpu"})
	}
	l.Uplink(&outbidv1.Uplink{Node: "n1", Boot: "b1", Info: info})
	worker, saved, clones := &site{began: map[uint64]int64{}}, map[string]bool{}, 0
	for clones == 0 {
		orders := <-l.orders
		for _, a := range orders.GetAssignments() {
			start, ok := objects.ParseCheckpoint(a.GetBody().GetStart().GetKey())
			if _, began := worker.began[a.GetFork().GetLeaseId()]; began || !ok || start.Of(id, a.GetFork().GetTrial(), start.LeaseID) {
				continue
			}
			clones++
			for key := range saved {
				err := l.MayReach(&outbidv1.AccessRequest{Node: "n1", Fork: a.GetFork(), Key: key, Bytes: 1})
				if c, _ := objects.ParseCheckpoint(key); (err == nil) != (key == a.GetBody().GetStart().GetKey()) && c.Trial != a.GetFork().GetTrial() {
					t.Errorf("trial %d, which starts from %s, reads %s: %v", a.GetFork().GetTrial(), a.GetBody().GetStart().GetKey(), key, err)
				}
			}
		}
		up := worker.train(orders)
		for _, m := range up.GetMessages() {
			if c := m.GetSaved(); c != nil {
				c.Key = objects.Checkpoint{
					Sweep: id, Trial: m.GetFork().GetTrial(), Step: c.GetStep(), LeaseID: m.GetFork().GetLeaseId(), Format: objects.Opaque,
				}.Key()
				saved[c.GetKey()] = true
			}
			if r := m.GetReport(); r != nil {
				r.Metrics["loss"] = float64(m.GetFork().GetTrial())
			}
		}
		l.Uplink(up)
	}
	if len(saved) < 3 {
		t.Errorf("only %d checkpoints were there to try", len(saved))
	}
	l.end(t)
}
