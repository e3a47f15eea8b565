package control_test

import (
	"testing"

	"github.com/outbid-dev/outbid/orchestrator/objects"
	"github.com/outbid-dev/outbid/orchestrator/sim"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// A node of a gang stores the shards of its ranks, and only the checkpoint with the shards of all ranks counts.
func TestANodeStoresTheShardsOfItsRanks(t *testing.T) {
	t.Parallel()
	l := startLoop(t, startNATS(t), &reports{})
	spec := sim.Sweep("s", "min", 1, sim.Tuner("random", map[string]int64{"max_steps": 50}))
	spec.Resources = &outbidv1.Resources{Devices: &outbidv1.DeviceCount{Min: 3, Max: 3}, Spread: true, Processes: "per_device"}
	id, err := l.Submit(t.Context(), spec, "me", "")
	if err != nil {
		t.Fatal(err)
	}
	node := func(name string, up *outbidv1.Uplink) *outbidv1.Orders {
		up.Node, up.Boot = name, "b"
		l.Uplink(up)
		return <-l.orders
	}
	gpu := func(n int) *outbidv1.Uplink {
		info := &outbidv1.NodeInfo{}
		for i := range n {
			info.Devices = append(info.Devices, &outbidv1.Device{Index: int32(i), Type: "gpu"})
		}
		return &outbidv1.Uplink{Info: info}
	}
	node("one", gpu(1))
	o := node("two", gpu(2))
	for len(o.GetAssignments()) == 0 {
		o = node("two", &outbidv1.Uplink{})
	}
	fork, body := o.GetAssignments()[0].GetFork(), o.GetAssignments()[0].GetBody()
	if body.GetGang().GetRanks() != 3 || !body.GetShardedCheckpoints() {
		t.Fatalf("a node got %v", body)
	}
	at := func(step int64, format objects.Format) string {
		return objects.Checkpoint{Sweep: id, Trial: fork.GetTrial(), Step: step, LeaseID: fork.GetLeaseId(), Format: format}.Key()
	}
	mine := at(3, objects.Sharded)
	check := func(node, key string, write, want bool) {
		t.Helper()
		if err := l.MayReach(&outbidv1.AccessRequest{Node: node, Fork: fork, Key: key, Write: write, Bytes: 1}); (err == nil) != want {
			t.Errorf("node %s, %s, write %v: %v", node, key, write, err)
		}
	}
	check("two", mine, true, true)
	check("one", mine, true, false)
	for rank, owner := range []string{"two", "two", "one", ""} {
		for _, name := range []string{"one", "two", "none"} {
			check(name, objects.ShardKey(mine, int32(rank)), true, name == owner)
		}
	}
	check("two", objects.ShardKey(mine, 2), false, false)
	for seq, saved := range []*outbidv1.Checkpoint{
		{Key: at(1, objects.Sharded), Step: 1, Shards: 2, ShardBytes: 8},
		{Key: at(1, objects.Sharded), Step: 1},
		{Key: at(1, objects.Safetensors), Step: 1, Shards: 3, ShardBytes: 8},
		{Key: at(1, objects.Sharded), Step: 1, Shards: 3, ShardBytes: -1},
		{Key: mine, Step: 3, Shards: 3, ShardBytes: 100, Bytes: 10},
	} {
		node("two", &outbidv1.Uplink{FirstSeq: uint64(seq) + 1, Messages: []*outbidv1.UplinkMessage{
			{Fork: fork, Kind: &outbidv1.UplinkMessage_Saved{Saved: saved}},
		}})
	}
	check("one", objects.ShardKey(mine, 0), false, true)
	check("two", objects.ShardKey(mine, 2), false, true)
	trials, err := l.Trials(id, fork.GetTrial(), 1)
	if err != nil || len(trials) != 1 || len(trials[0].GetCheckpoints()) != 1 || trials[0].GetCheckpoints()[0].GetKey() != mine {
		t.Fatal("the trial has these checkpoints:", trials, err)
	}
	l.end(t)
}
