package objects_test

import (
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/outbid-dev/outbid/orchestrator/objects"
)

func TestACheckpointsKeyIsReadAsItWasWritten(t *testing.T) {
	t.Parallel()
	good := objects.Checkpoint{Sweep: "s-1", Trial: 3, Step: 27, LeaseID: 9, Format: objects.Opaque}
	if key := good.Key(); key != "checkpoints/s-1/3/000000000027-9.ckpt" {
		t.Errorf("its key is %s, which others have in their ledgers otherwise", key)
	}
	rapid.Check(t, func(rt *rapid.T) {
		want := objects.Checkpoint{
			Sweep: rapid.StringMatching(`[a-z]{1,5}-[0-9]{1,3}`).Draw(rt, "sweep"), Trial: rapid.Int32Range(0, math.MaxInt32).Draw(rt, "trial"),
			Step: rapid.Int64Range(0, math.MaxInt64).Draw(rt, "step"), LeaseID: rapid.Uint64().Draw(rt, "lease"),
			Format: rapid.SampledFrom([]objects.Format{objects.Safetensors, objects.Opaque, objects.Sharded}).Draw(rt, "format"),
		}
		key := want.Key()
		got, ok := objects.ParseCheckpoint(key)
		part, also := objects.CheckpointAt(key + "/part/0")
		if !ok || !also || got != want || part != want || !got.Of(want.Sweep, want.Trial, want.LeaseID) || !strings.HasPrefix(key, objects.CheckpointsOf(want.Sweep)) {
			rt.Fatalf("%s is read as %+v, %v and %+v, %v", key, got, ok, part, also)
		}
	})
}

func TestAShardsKeyIsReadAsItWasWritten(t *testing.T) {
	t.Parallel()
	of := objects.Checkpoint{Sweep: "s-1", Trial: 3, Step: 27, LeaseID: 9, Format: objects.Sharded}
	key := objects.ShardKey(of.Key(), 12)
	if key != "checkpoints/s-1/3/000000000027-9.shards.12" {
		t.Errorf("its key is %s, which others have in their stores otherwise", key)
	}
	got, rank, ok := objects.ParseShard(key)
	whole, also := objects.CheckpointAt(key)
	if !ok || !also || got != of || whole != of || rank != 12 {
		t.Errorf("%s is read as %+v, %d, %v and %+v, %v", key, got, rank, ok, whole, also)
	}
	of.Format = objects.Safetensors
	for _, bad := range []string{
		of.Key(), objects.ShardKey(of.Key(), 1), key + ".1", strings.Replace(key, ".12", ".012", 1), strings.Replace(key, ".12", ".-1", 1),
		strings.Replace(key, ".12", "", 1), "x", "",
	} {
		if c, rank, ok := objects.ParseShard(bad); ok {
			t.Errorf("%s is read as %+v, %d", bad, c, rank)
		}
	}
}

func TestWhatIsNoCheckpointsKey(t *testing.T) {
	t.Parallel()
	good := objects.Checkpoint{Sweep: "s-1", Trial: 3, Step: 27, LeaseID: 9, Format: objects.Opaque}.Key()
	for _, key := range []string{
		"", "blobs/x", "checkpoints/s-1/3/000000000027-9.exe", good + "/more", "x/" + good, "checkpoints/" + good,
		"checkpoints/s-1/3/../4/000000000027-9.ckpt", "checkpoints/s-1/3/27-9.ckpt", "checkpoints/s-1/3/-00000000027-9.ckpt",
		"checkpoints/s-1/3/000000000027-9-9.ckpt", "checkpoints/s-1/-3/000000000027-9.ckpt", "checkpoints/s-1/3/000000000027.ckpt",
		"checkpoints/../3/000000000027-9.ckpt", "checkpoints/s-1/03/000000000027-9.ckpt", "s-1/3/000000000027-9.ckpt",
		"checkpoints//3/000000000027-9.ckpt", "checkpoints/s-1/3/000000000027-09.ckpt",
	} {
		if c, ok := objects.ParseCheckpoint(key); ok {
			t.Errorf("%s is read as %+v", key, c)
		}
	}
	for _, other := range []objects.Checkpoint{{Sweep: "s-2", Trial: 3, LeaseID: 9}, {Sweep: "s-1", Trial: 4, LeaseID: 9}, {Sweep: "s-1", Trial: 3, LeaseID: 8}} {
		if other.Of("s-1", 3, 9) {
			t.Errorf("%+v is said to be another's", other)
		}
	}
}
