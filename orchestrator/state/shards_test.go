package state_test

import (
	"errors"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

func shardStored(lease uint64, rank int32, step, bytes int64) *outbidv1.Event {
	return &outbidv1.Event{Kind: &outbidv1.Event_ShardStored{ShardStored: &outbidv1.ShardStored{
		Sweep: "s-1", LeaseId: lease, Saved: &outbidv1.SavedShard{Step: step, Shard: &outbidv1.CheckpointShard{Rank: rank, Bytes: bytes}},
	}}}
}

// The shards of an incomplete checkpoint count for themselves, until the checkpoint is complete or the lease ends.
func TestStoredShardsCount(t *testing.T) {
	t.Parallel()
	st := state.New()
	size := func(want int64) {
		t.Helper()
		if got := st.Sweeps["s-1"].CheckpointBytes; got != want {
			t.Errorf("the checkpoints have %d bytes, want %d", got, want)
		}
		restored, err := state.Restore(st.Snapshot())
		if err != nil || restored.Sweeps["s-1"].CheckpointBytes != want {
			t.Errorf("after a restore they have %d bytes, want %d: %v", restored.Sweeps["s-1"].CheckpointBytes, want, err)
		}
	}
	apply(t, st, submitted(spec(1)), joined(1), created(0), created(1), granted(0, 1, 0))
	apply(t, st, shardStored(1, 1, 3, 10), shardStored(1, 0, 3, 5))
	size(15)
	published := st.Sweeps["s-1"].Trials[0].Leases[0].Shards
	before := proto.CloneOf(published[1])
	apply(t, st, shardStored(1, 1, 3, 100)) // stored again
	size(105)
	if !proto.Equal(published[1], before) {
		t.Error("a published lease was changed")
	}
	done := saved(0, "a", 3, .5)
	done.GetCheckpointSaved().Checkpoint = &outbidv1.Checkpoint{Key: "a", Step: 3, LeaseId: 1, Shards: 2, Bytes: 1, ShardBytes: 105}
	apply(t, st, done)
	size(106)
	apply(t, st, shardStored(1, 0, 4, 7))
	size(113)
	if c := st.Sweeps["s-1"].Trials[0].Newest(); c.GetKey() != "a" {
		t.Errorf("the newest is %v", c)
	}
	apply(t, st, shardStored(1, 1, 3, 1000)) // replaces a shard of the complete checkpoint
	size(1113)
	if c := st.Sweeps["s-1"].Trials[0].Newest(); c != nil {
		t.Errorf("a checkpoint with a replaced shard is readable: %v", c)
	}
	if done.GetCheckpointSaved().GetCheckpoint().GetShardBytes() != 105 {
		t.Error("the event has changed")
	}
	apply(t, st, leaseEnded(0, 1))
	size(1106)
	for _, bad := range []*outbidv1.Event{shardStored(1, 0, 5, 1), shardStored(2, 0, 5, 1)} {
		if err := st.Apply(at(), bad); !errors.Is(err, state.ErrBroken) {
			t.Errorf("%v: %v", bad, err)
		}
	}
}
