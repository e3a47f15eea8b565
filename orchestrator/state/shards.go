package state

import (
	"cmp"
	"slices"

	"google.golang.org/protobuf/proto"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Shard returns the newest stored shard of a rank whose checkpoint is not complete, or nil.
func (l *Lease) Shard(rank int32) *outbidv1.SavedShard {
	i, found := l.findShard(rank)
	if !found {
		return nil
	}
	return l.Shards[i]
}

func (l *Lease) findShard(rank int32) (int, bool) {
	return slices.BinarySearchFunc(l.Shards, rank, func(s *outbidv1.SavedShard, rank int32) int {
		return cmp.Compare(s.GetShard().GetRank(), rank)
	})
}

// Sharded returns the complete checkpoint with shards that was saved at a step under a lease, or nil.
func (t *Trial) Sharded(l *Lease, step int64) *outbidv1.Checkpoint {
	for _, c := range t.Checkpoints {
		if c.GetShards() > 0 && c.GetLeaseId() == l.ID && c.GetStep() == step {
			return c
		}
	}
	return nil
}

// shardStored records a stored shard. One that replaced a shard of a complete checkpoint makes that unreadable, because
// it no longer fits the manifest; both then count, because the size of the replaced one is not known.
func shardStored(f *foldContext, e *outbidv1.ShardStored) error {
	l, t, saved := f.lease, f.trial, e.GetSaved()
	if l == nil {
		return broken("shard under lease %d, which it does not hold", e.GetLeaseId())
	}
	if saved.GetShard().GetBytes() < 0 {
		return broken("shard of %d bytes", saved.GetShard().GetBytes())
	}
	if old := t.Sharded(l, saved.GetStep()); old != nil {
		larger := proto.CloneOf(old)
		larger.ShardBytes += saved.GetShard().GetBytes()
		t.Checkpoints = slices.Clone(t.Checkpoints)
		t.Checkpoints[slices.Index(t.Checkpoints, old)] = larger
		f.sweep.unreadable(t, larger.GetKey())
		return nil
	}
	i, found := l.findShard(saved.GetShard().GetRank())
	shards := slices.Clone(l.Shards) // a published lease has the slice
	if found {
		shards[i] = saved
	} else {
		shards = slices.Insert(shards, i, saved)
	}
	l.Shards = shards
	return nil
}

// completeShards forgets the stored shards of a checkpoint that is complete.
func (l *Lease) completeShards(c *outbidv1.Checkpoint) {
	if l == nil || c.GetShards() == 0 {
		return
	}
	l.Shards = slices.DeleteFunc(slices.Clone(l.Shards), func(s *outbidv1.SavedShard) bool { return s.GetStep() == c.GetStep() })
}
