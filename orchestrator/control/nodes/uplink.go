package nodes

import (
	"fmt"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/control/trials"
	"github.com/outbid-dev/outbid/orchestrator/objects"
	"github.com/outbid-dev/outbid/orchestrator/spec"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Apply applies a message of a worker.
func (ns *Nodes) Apply(up *outbidv1.Uplink) {
	l := ns.contact(up.GetNode())
	n := ns.st.Nodes[up.GetNode()]
	if ns.rival(n, l, up) {
		return
	}
	l.seen, l.heard, l.boot = ns.core.Now(), true, up.GetBoot()
	ns.OrdersDue(up.GetNode())
	if n == nil || n.Info.GetBoot() != up.GetBoot() {
		if up.GetInfo() == nil {
			l.hello = true
			return
		}
		if l.refused = refusal(ns.set.Version, boundInfo(up.GetInfo()).GetVersion()); l.refused != "" {
			return
		}
		ns.join(up, n)
		n = ns.st.Nodes[up.GetNode()]
	} else if n.State == outbidv1.NodeState_NODE_STATE_LOST && !up.GetLeaving() {
		ns.changeNode(up.GetNode(), outbidv1.NodeState_NODE_STATE_UP, "seen again")
	}
	l.hello, l.own = false, ns.core.Now()
	if !up.GetForksLeftOut() {
		l.taken = make(map[uint64]uint64, len(up.GetForks()))
		for _, f := range up.GetForks() {
			l.taken[f.GetFork().GetLeaseId()] = f.GetVersion()
		}
	}
	if why := ns.faults.Health(n, up.GetHealth()); why != "" {
		ns.moveAway(n, outbidv1.RevokeKind_REVOKE_KIND_PAUSE, fmt.Sprintf("node %s ends soon: %s", n.Info.GetName(), why))
	}
	if len(n.Faults) > 0 {
		ns.faults.Readmit(n)
	}
	ns.messages(n, up)
	if !up.GetForksLeftOut() {
		ns.missing(n, up)
	}
	if up.GetLeaving() && n.State != outbidv1.NodeState_NODE_STATE_LEFT {
		ns.freeNode(n, "its worker stopped", false)
		ns.changeNode(up.GetNode(), outbidv1.NodeState_NODE_STATE_LEFT, "its worker stopped")
		ns.faults.Left(n)
	}
}

// rivalBeats is for how many heartbeats a worker must be silent before another one may take its name. A worker that was
// killed and restarted waits that long, and two workers with the same name do not evict each other.
const rivalBeats = 3

// rival reports whether an uplink comes from a worker other than the live owner of the node's name. It gets no
// answer; it learns the reason from the owner's orders.
func (ns *Nodes) rival(n *state.Node, l *nodeContact, up *outbidv1.Uplink) bool {
	return n != nil && n.Up() && n.Info.GetBoot() != up.GetBoot() && !l.own.IsZero() && ns.core.Now().Sub(l.own) < rivalBeats*ns.beat()
}

// messages applies the messages that are not in the ledger yet, in order. If one is missing, the node sends all of
// them again.
func (ns *Nodes) messages(n *state.Node, up *outbidv1.Uplink) {
	first := up.GetFirstSeq()
	if len(up.GetMessages()) == 0 || first > n.SeenSeq+1 {
		return
	}
	known := n.SeenSeq + 1 - first
	if known >= uint64(len(up.GetMessages())) {
		return
	}
	for _, m := range up.GetMessages()[known:] {
		ns.message(n, m)
	}
	ns.core.Emit(&outbidv1.Event{Kind: &outbidv1.Event_UplinkSeen{UplinkSeen: &outbidv1.UplinkSeen{
		Node: up.GetNode(), Boot: up.GetBoot(), Seq: first + uint64(len(up.GetMessages())) - 1,
	}}})
}

// message applies one message. Messages of a fork whose lease is over are ignored.
func (ns *Nodes) message(n *state.Node, m *outbidv1.UplinkMessage) {
	boundMessage(m)
	ref := m.GetFork()
	s := ns.st.Sweeps[ref.GetSweep()]
	if note, ok := m.GetKind().(*outbidv1.UplinkMessage_Note); ok {
		ns.workerNote(n, s, ref, note.Note)
		return
	}
	if s == nil {
		return
	}
	t, err := s.Trial(ref.GetTrial())
	if err != nil {
		return
	}
	if done, ok := m.GetKind().(*outbidv1.UplinkMessage_Consolidated); ok {
		ns.merging.Consolidated(n, s, t, done.Consolidated)
		return
	}
	l := t.Held(ref.GetLeaseId())
	if l == nil {
		return
	}
	switch place := l.PlaceOn(n.Info.GetName()); {
	case place < 0:
		return
	case place > 0 && m.GetEnded() == nil && m.GetShard() == nil:
		return // only rank 0 reports for a gang
	}
	switch k := m.GetKind().(type) {
	case *outbidv1.UplinkMessage_Began:
		ns.core.Emit(&outbidv1.Event{Kind: &outbidv1.Event_ForkStarted{ForkStarted: &outbidv1.ForkStarted{
			Sweep: s.ID, Trial: t.Number, LeaseId: ref.GetLeaseId(), FromStep: k.Began.GetFromStep(),
		}}})
		ns.faults.StartedWell(s, l)
	case *outbidv1.UplinkMessage_Report:
		ns.trials.Report(s, t, l, k.Report)
	case *outbidv1.UplinkMessage_Reached:
		ns.trials.Reached(s, t, l, k.Reached.GetStep())
	case *outbidv1.UplinkMessage_Saved:
		// Reject another trial's object, which this trial would otherwise read and delete.
		if ck, ok := objects.ParseCheckpoint(k.Saved.GetKey()); ok && ck.Of(s.ID, t.Number, l.ID) && hasItsShards(s, t, l, ck, k.Saved) {
			ns.saved(s, t, l, k.Saved)
		}
	case *outbidv1.UplinkMessage_Shard:
		if isItsShard(s, t, l, n.Info.GetName(), k.Shard) {
			ns.trials.ShardStored(s, t, l, k.Shard)
		}
	case *outbidv1.UplinkMessage_Ended:
		ns.trials.Ended(s, t, l, n.Info.GetName(), k.Ended)
	}
}

// saved records a checkpoint. If all workers of a gang report their shards, a checkpoint with shards counts if they were
// reported; otherwise what the process of rank 0 says about them counts.
func (ns *Nodes) saved(s *state.Sweep, t *state.Trial, l *state.Lease, saved *outbidv1.Checkpoint) {
	older := func(p state.Place) bool { return !ns.st.Nodes[p.Node].Info.GetReportsShards() }
	if saved.GetShards() == 0 || slices.ContainsFunc(l.Places, older) {
		saved.ManifestSum = ""
		ns.trials.Saved(s, t, l, saved)
		return
	}
	ns.trials.ShardsSaved(s, t, l, saved)
}

// isItsShard reports whether a shard was saved by a process of a node. Forks do not save shards.
func isItsShard(s *state.Sweep, t *state.Trial, l *state.Lease, node string, saved *outbidv1.SavedShard) bool {
	first, count := l.Ranks(spec.PerDevice(s.Spec), l.PlaceOn(node))
	rank := saved.GetShard().GetRank()
	part, _ := t.Slot.Part(l.ID)
	return part == nil && rank >= first && rank < first+count && saved.GetShard().GetSha256() != "" && saved.GetShard().GetBytes() >= 0 && saved.GetStep() >= 0
}

// hasItsShards reports whether a checkpoint has one shard of each process, or none if it is one file. Forks do not save
// shards, because they cannot be averaged.
func hasItsShards(s *state.Sweep, t *state.Trial, l *state.Lease, ck objects.Checkpoint, saved *outbidv1.Checkpoint) bool {
	if ck.Format != objects.Sharded {
		return saved.GetShards() == 0 && saved.GetShardBytes() == 0
	}
	part, _ := t.Slot.Part(l.ID)
	return part == nil && saved.GetShards() == worldSize(l, spec.PerDevice(s.Spec)) && saved.GetShardBytes() >= 0
}

func (ns *Nodes) workerNote(n *state.Node, s *state.Sweep, ref *outbidv1.ForkRef, note *outbidv1.Note) {
	if s == nil {
		return
	}
	trial := ref.GetTrial()
	ns.core.Note(s.ID, &trial, note.GetLevel(), "%s (node %s)", note.GetText(), n.Info.GetName())
}

// missing ends leases whose fork the node had accepted but has not named for the duration of a lease.
func (ns *Nodes) missing(n *state.Node, up *outbidv1.Uplink) {
	l := ns.contact(up.GetNode())
	for _, lease := range slices.Clone(n.Leases) {
		if _, has := l.taken[lease.ID]; has || !lease.Started {
			delete(l.missing, lease.ID)
			continue
		}
		since, noted := l.missing[lease.ID]
		if !noted {
			l.missing[lease.ID] = ns.core.Now()
			continue
		}
		if ns.core.Now().Sub(since) < ns.set.Lease {
			continue
		}
		delete(l.missing, lease.ID)
		s := ns.st.Sweeps[lease.Sweep]
		ns.trials.ForkFailed(s, s.Trials[lease.Trial], lease, up.GetNode(), trials.Failure{
			Kind: outbidv1.FailureKind_FAILURE_KIND_NODE_LOST, Detail: "its worker no longer runs it",
		})
	}
}
