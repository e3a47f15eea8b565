package control_test

import (
	"math"
	"strings"
	"testing"

	"github.com/outbid-dev/outbid/orchestrator/checkpoint/manifest"
	"github.com/outbid-dev/outbid/orchestrator/objects"
	"github.com/outbid-dev/outbid/orchestrator/sim"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// sharding is a trial of three processes on two nodes, whose workers report the shards that they store.
type sharding struct {
	*running

	id   string
	fork *outbidv1.ForkRef
	seqs map[string]uint64
}

func startSharding(t *testing.T, olderWorker bool) *sharding {
	t.Helper()
	g := &sharding{running: startLoop(t, startNATS(t), &reports{}), seqs: map[string]uint64{}}
	spec := sim.Sweep("s", "min", 1, sim.Tuner("random", map[string]int64{"max_steps": 50}))
	spec.Resources = &outbidv1.Resources{Devices: &outbidv1.DeviceCount{Min: 3, Max: 3}, Spread: true, Processes: "per_device"}
	var err error
	if g.id, err = g.Submit(t.Context(), spec, "me", ""); err != nil {
		t.Fatal(err)
	}
	gpu := func(n int, reports bool) *outbidv1.NodeInfo {
		info := &outbidv1.NodeInfo{ReportsShards: reports}
		for i := range n {
			info.Devices = append(info.Devices, &outbidv1.Device{Index: int32(i), Type: "gpu"})
		}
		return info
	}
	g.uplink("one", &outbidv1.Uplink{Info: gpu(1, !olderWorker)})
	o := g.uplink("two", &outbidv1.Uplink{Info: gpu(2, true)})
	for len(o.GetAssignments()) == 0 {
		o = g.uplink("two", &outbidv1.Uplink{})
	}
	g.fork = o.GetAssignments()[0].GetFork()
	return g
}

func (g *sharding) uplink(node string, up *outbidv1.Uplink) *outbidv1.Orders {
	up.Node, up.Boot = node, "b"
	g.Uplink(up)
	last := up.GetFirstSeq() + uint64(max(1, len(up.GetMessages()))) - 1
	for o := range g.orders {
		if o.GetNode() == node && (up.GetFirstSeq() == 0 || o.GetAckedSeq() >= last) {
			return o
		}
	}
	return nil
}

func (g *sharding) send(node string, m *outbidv1.UplinkMessage) {
	g.seqs[node]++
	m.Fork = g.fork
	g.uplink(node, &outbidv1.Uplink{FirstSeq: g.seqs[node], Messages: []*outbidv1.UplinkMessage{m}})
}

// stored reports a shard as the worker of its rank does.
func (g *sharding) stored(rank int32, step, bytes int64) {
	g.send([]string{"two", "two", "one"}[rank], shardMessage(rank, step, bytes))
}

func shardMessage(rank int32, step, bytes int64) *outbidv1.UplinkMessage {
	return &outbidv1.UplinkMessage{Kind: &outbidv1.UplinkMessage_Shard{Shard: &outbidv1.SavedShard{
		Step: step, Shard: &outbidv1.CheckpointShard{Rank: rank, Bytes: bytes, Sha256: "sum"},
	}}}
}

func (g *sharding) key(step int64) string {
	return objects.Checkpoint{Sweep: g.id, Trial: g.fork.GetTrial(), Step: step, LeaseID: g.fork.GetLeaseId(), Format: objects.Sharded}.Key()
}

// complete reports a manifest that names shards of these sizes as the worker of rank 0 does.
func (g *sharding) complete(step int64, sizes ...int64) {
	var shards []manifest.Shard
	sum := int64(0)
	for _, n := range sizes {
		shards, sum = append(shards, manifest.Shard{Bytes: n, SHA256: "sum"}), sum+n
	}
	g.send("two", &outbidv1.UplinkMessage{Kind: &outbidv1.UplinkMessage_Saved{Saved: &outbidv1.Checkpoint{
		Key: g.key(step), Step: step, Bytes: 1, Shards: int32(len(sizes)), ShardBytes: sum, ManifestSum: manifest.Sum(shards),
	}}})
}

// look returns the trial's steps with a checkpoint and their sizes, its state, and its tenant's bytes.
func (g *sharding) look(t *testing.T) (*outbidv1.Trial, map[int64]int64) {
	t.Helper()
	trials, err := g.Trials(g.id, g.fork.GetTrial(), 1)
	if err != nil || len(trials) != 1 {
		t.Fatal(trials, err)
	}
	sizes := map[int64]int64{}
	for _, c := range trials[0].GetCheckpoints() {
		sizes[c.GetStep()] = c.GetShardBytes()
		if c.GetManifestSum() != "" {
			t.Error("the ledger has the sum of the manifest")
		}
	}
	return trials[0], sizes
}

// The sizes that the nodes reported count, whatever the process of rank 0 says.
func TestAHostileProcessCannotUnderstateItsShards(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		attack func(g *sharding)
		// want are the bytes of the checkpoint of step 3, or -1 if it must not count; ends is the reason of the trial's failure.
		want int64
		ends string
	}{
		"honest": {func(g *sharding) { g.complete(3, 10, 20, 30) }, 60, ""},
		"honest, a shard was stored twice": {func(g *sharding) {
			g.stored(1, 3, 21)
			g.stored(1, 3, 20)
			g.complete(3, 10, 20, 30)
		}, 60, ""},
		"understated":             {func(g *sharding) { g.complete(3, 10, 20, 1) }, -1, "disagrees with the 60 bytes"},
		"overstated":              {func(g *sharding) { g.complete(3, 10, 20, math.MaxInt64-30) }, -1, "disagrees with the 60 bytes"},
		"negative":                {func(g *sharding) { g.complete(3, 10, 20, -30) }, -1, "disagrees"},
		"repeated":                {func(g *sharding) { g.complete(3, 10, 10, 30) }, -1, "disagrees with the 60 bytes"},
		"in another order":        {func(g *sharding) { g.complete(3, 20, 10, 30) }, -1, "disagrees with the 60 bytes"},
		"missing in the manifest": {func(g *sharding) { g.complete(3, 10, 20) }, -1, ""},
		"never stored":            {func(g *sharding) { g.complete(4, 10, 20, 30) }, -1, ""},
		"no sum": {func(g *sharding) {
			g.send("two", &outbidv1.UplinkMessage{Kind: &outbidv1.UplinkMessage_Saved{Saved: &outbidv1.Checkpoint{Key: g.key(3), Step: 3, Shards: 3}}})
		}, -1, "disagrees with the 60 bytes"},
		"one of another step": {func(g *sharding) {
			g.stored(2, 5, 30)
			g.complete(3, 10, 20, 30)
		}, -1, ""},
		"of another node's rank": {func(g *sharding) {
			g.send("one", shardMessage(0, 3, 1))
			g.send("two", shardMessage(2, 3, 1))
			g.send("two", shardMessage(7, 3, 1))
			g.send("two", shardMessage(-1, 3, 1))
			g.send("two", shardMessage(0, 3, -1))
			g.send("two", &outbidv1.UplinkMessage{Kind: &outbidv1.UplinkMessage_Shard{}})
			g.complete(3, 10, 20, 30)
		}, 60, ""},
		"replaced afterwards": {func(g *sharding) {
			g.complete(3, 10, 20, 30)
			g.stored(2, 3, 1000)
		}, -1, "rank 2 replaced its shard"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := startSharding(t, false)
			for rank, bytes := range []int64{10, 20, 30} {
				g.stored(int32(rank), 3, bytes)
			}
			c.attack(g)
			trial, sizes := g.look(t)
			got, counts := sizes[3]
			if counts != (c.want >= 0) || counts && got != c.want {
				t.Errorf("the checkpoints have %v, want %d", sizes, c.want)
			}
			failed := trial.GetState() == outbidv1.TrialState_TRIAL_STATE_FAILED
			if failed != (c.ends != "") || !strings.Contains(trial.GetReason(), c.ends) {
				t.Errorf("it is %s: %s", trial.GetState(), trial.GetReason())
			}
			for _, node := range []string{"one", "two"} {
				if n := g.node(t, node); len(n.GetFaults()) > 0 {
					t.Errorf("node %s is blamed: %v", node, n.GetFaults())
				}
			}
			g.end(t)
		})
	}
}

func (g *sharding) node(t *testing.T, name string) *outbidv1.Node {
	t.Helper()
	for _, n := range g.Nodes() {
		if n.GetInfo().GetName() == name {
			return n
		}
	}
	t.Fatal("no node", name)
	return nil
}

// Neither a shard nor the manifest of a complete checkpoint can be stored again.
func TestACompleteCheckpointIsNotReplaced(t *testing.T) {
	t.Parallel()
	g := startSharding(t, false)
	may := func(step int64, want bool) {
		t.Helper()
		for _, key := range []string{g.key(step), objects.ShardKey(g.key(step), 1)} {
			if err := g.MayReach(&outbidv1.AccessRequest{Node: "two", Fork: g.fork, Key: key, Write: true, Bytes: 1}); (err == nil) != want {
				t.Errorf("%s: %v", key, err)
			}
		}
	}
	for rank := range int32(3) {
		g.stored(rank, 3, 10)
	}
	may(3, true)
	g.complete(3, 10, 10, 10)
	may(3, false)
	may(4, true)
	g.complete(3, 1, 1, 1)
	if _, sizes := g.look(t); sizes[3] != 30 {
		t.Errorf("the checkpoints have %v", sizes)
	}
	g.end(t)
}

// With a worker that does not report shards, the stated size counts.
func TestAnOlderWorkerDoesNotReportShards(t *testing.T) {
	t.Parallel()
	g := startSharding(t, true)
	g.stored(0, 3, 10)
	g.complete(3, 10, 20, 30)
	if _, sizes := g.look(t); sizes[3] != 60 {
		t.Errorf("the checkpoints have %v", sizes)
	}
	g.end(t)
}
