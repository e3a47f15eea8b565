package trials

import (
	"fmt"

	"github.com/outbid-dev/outbid/orchestrator/checkpoint/manifest"
	"github.com/outbid-dev/outbid/orchestrator/objects"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// ShardStored records a shard that a node of a gang has stored. The shard of the same rank for another step, whose
// checkpoint was never completed, is deleted. A trial that replaces a shard of a complete checkpoint fails for good.
func (ts *Trials) ShardStored(s *state.Sweep, t *state.Trial, l *state.Lease, saved *outbidv1.SavedShard) {
	before, complete := l.Shard(saved.GetShard().GetRank()), t.Sharded(l, saved.GetStep()) != nil
	ts.core.Emit(&outbidv1.Event{Kind: &outbidv1.Event_ShardStored{ShardStored: &outbidv1.ShardStored{
		Sweep: s.ID, Trial: t.Number, LeaseId: l.ID, Saved: saved,
	}}})
	if complete {
		ts.failSave(s, t, fmt.Sprintf("rank %d replaced its shard of the complete checkpoint of step %d", saved.GetShard().GetRank(), saved.GetStep()))
		return
	}
	if before != nil && before.GetStep() != saved.GetStep() {
		ts.deleteShard(s, t, l, before)
	}
}

// ShardsSaved records a checkpoint with shards, with the sizes that the nodes reported. A checkpoint whose shards were
// not all reported does not count. A trial whose manifest describes other shards fails for good.
func (ts *Trials) ShardsSaved(s *state.Sweep, t *state.Trial, l *state.Lease, ck *outbidv1.Checkpoint) {
	if t.Sharded(l, ck.GetStep()) != nil {
		return // the manifest was stored again
	}
	said := ck.GetManifestSum()
	ck.ManifestSum, ck.ShardBytes = "", 0
	var found []manifest.Shard
	for rank := range ck.GetShards() {
		saved := l.Shard(rank)
		if saved == nil || saved.GetStep() != ck.GetStep() {
			ts.core.Note(s.ID, &t.Number, "warning", "the checkpoint of step %d does not count: the shard of rank %d is not stored", ck.GetStep(), rank)
			ts.core.Delete(ck.GetKey())
			return
		}
		ck.ShardBytes += saved.GetShard().GetBytes()
		found = append(found, manifest.Shard{Bytes: saved.GetShard().GetBytes(), SHA256: saved.GetShard().GetSha256()})
	}
	if said != manifest.Sum(found) {
		ts.core.Delete(ck.GetKey())
		ts.failSave(s, t, fmt.Sprintf("the manifest of step %d disagrees with the %d bytes of shards that the nodes stored", ck.GetStep(), ck.GetShardBytes()))
		return
	}
	ts.Saved(s, t, l, ck)
}

// failSave fails a trial for good whose processes store shards against the protocol.
func (ts *Trials) failSave(s *state.Sweep, t *state.Trial, reason string) {
	if t.Done() {
		return
	}
	ts.core.Note(s.ID, &t.Number, "error", "failed for good: %s", reason)
	ts.End(s, t, outbidv1.TrialState_TRIAL_STATE_FAILED, reason, false)
}

// deleteShard deletes a shard whose checkpoint is not complete.
func (ts *Trials) deleteShard(s *state.Sweep, t *state.Trial, l *state.Lease, saved *outbidv1.SavedShard) {
	key := objects.Checkpoint{Sweep: s.ID, Trial: t.Number, Step: saved.GetStep(), LeaseID: l.ID, Format: objects.Sharded}.Key()
	ts.core.Delete(objects.ShardKey(key, saved.GetShard().GetRank()))
}
