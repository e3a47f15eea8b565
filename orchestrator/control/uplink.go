package control

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/objects"
	"github.com/outbid-dev/outbid/orchestrator/sanitize"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Uplink is a message from a worker.
type Uplink struct{ Message *outbidv1.Uplink }

// nodeContact is what the core knows of a node besides the state: what must not outlive a restart.
type nodeContact struct {
	// seen is when the node was last seen.
	seen time.Time
	// own is when the worker that owns the node's name was last seen, or zero if it has not been since the start.
	own time.Time
	// boot is the boot ID that was last seen. The core asks for the info of unknown boots.
	boot string
	// taken is the version of each assignment that the node acts on, by lease ID.
	taken map[uint64]uint64
	// missing is the time since when the node has not named a fork that it had accepted, by lease ID.
	missing map[uint64]time.Time
	// said are the assignments of the last orders, by lease ID. Most are the same in the next orders. They must not
	// be changed.
	said map[uint64]*outbidv1.Assignment
	// generation of the last orders.
	generation uint64
	// hello reports that the node must send its info.
	hello bool
	// refused is why the worker is refused, or "".
	refused string
	// check is the number of the worker's latest check of its machine, or 0. probed is its value when a cordoned node
	// became eligible for a retry, or 0 while it is not.
	check, probed uint64
}

func (c *Core) contact(node string) *nodeContact {
	l, ok := c.nodes[node]
	if !ok {
		l = &nodeContact{seen: c.started, missing: map[uint64]time.Time{}}
		c.nodes[node] = l
	}
	return l
}

// dirty marks a node as needing orders.
func (c *Core) dirty(node string) {
	if node != "" {
		c.ordersDue[node] = true
	}
}

func (u Uplink) apply(c *Core) {
	up := u.Message
	l := c.contact(up.GetNode())
	n := c.st.Nodes[up.GetNode()]
	if c.rival(n, l, up) {
		return
	}
	l.seen, l.boot = c.now, up.GetBoot()
	c.dirty(up.GetNode())
	if n == nil || n.Info.GetBoot() != up.GetBoot() {
		if up.GetInfo() == nil {
			l.hello = true
			return
		}
		if l.refused = refusal(c.set.Version, boundInfo(up.GetInfo()).GetVersion()); l.refused != "" {
			return
		}
		c.join(up, n)
		n = c.st.Nodes[up.GetNode()]
	} else if n.State == outbidv1.NodeState_NODE_STATE_LOST && !up.GetLeaving() {
		c.changeNode(up.GetNode(), outbidv1.NodeState_NODE_STATE_UP, "seen again")
	}
	l.hello, l.own = false, c.now
	if !up.GetForksLeftOut() {
		l.taken = make(map[uint64]uint64, len(up.GetForks()))
		for _, f := range up.GetForks() {
			l.taken[f.GetFork().GetLeaseId()] = f.GetVersion()
		}
	}
	c.health(n, l, up.GetHealth())
	if len(n.Faults) > 0 {
		c.readmit(n)
	}
	c.messages(n, up)
	if !up.GetForksLeftOut() {
		c.missing(n, up)
	}
	if up.GetLeaving() && n.State != outbidv1.NodeState_NODE_STATE_LEFT {
		c.freeNode(n, "its worker stopped", false)
		c.changeNode(up.GetNode(), outbidv1.NodeState_NODE_STATE_LEFT, "its worker stopped")
	}
}

// rivalAfter is how long a worker must be silent before another one may take its name. A worker that was killed and
// restarted waits that long, and two workers with the same name do not evict each other.
const rivalAfter = 3 * time.Second

// rival reports whether an uplink comes from a worker other than the live owner of the node's name. It gets no
// answer; it learns the reason from the owner's orders.
func (c *Core) rival(n *state.Node, l *nodeContact, up *outbidv1.Uplink) bool {
	return n != nil && n.Up() && n.Info.GetBoot() != up.GetBoot() && !l.own.IsZero() && c.now.Sub(l.own) < rivalAfter
}

// join registers a node, or a new boot of a node. The trials of an earlier boot are gone.
func (c *Core) join(up *outbidv1.Uplink, old *state.Node) {
	switch {
	case old != nil && up.GetInfo().GetKilled() != "" && up.GetInfo().GetKilled() == old.Info.GetBoot():
		c.freeNode(old, "its worker was killed from outside and restarted", false)
	case old != nil:
		c.freeNode(old, "its worker restarted", true)
	}
	info := boundInfo(up.GetInfo())
	sanitize.RepairFields(info)
	info.Trusted = c.set.Trust != nil && c.set.Trust(up.GetNode())
	info.Name, info.Boot = up.GetNode(), up.GetBoot()
	c.touchForked()
	c.emit(&outbidv1.Event{Kind: &outbidv1.Event_NodeJoined{NodeJoined: &outbidv1.NodeJoined{Node: info}}})
}

// changeNode records a node's new state. Averages that were assigned to the node are reassigned.
func (c *Core) changeNode(node string, to outbidv1.NodeState, reason string) {
	c.touchForked()
	c.emit(&outbidv1.Event{Kind: &outbidv1.Event_NodeChanged{NodeChanged: &outbidv1.NodeChanged{
		Node: node, State: to, Reason: reason,
	}}})
}

// freeNode ends every lease on a node whose processes are gone. died is false if its worker shut down cleanly, or was
// killed by something that no trial can have caused.
func (c *Core) freeNode(n *state.Node, why string, died bool) {
	for _, l := range slices.Clone(n.Leases) {
		s := c.st.Sweeps[l.Sweep]
		c.forkFailed(s, s.Trials[l.Trial], l, n.Info.GetName(), failure{
			kind: outbidv1.FailureKind_FAILURE_KIND_NODE_LOST, died: died,
			detail: fmt.Sprintf("node %s: %s", n.Info.GetName(), why),
		})
	}
}

// checkNode marks a node as lost if it was silent for longer than its lease, because its worker has ended its forks
// by then.
func (c *Core) checkNode(n *state.Node) {
	if !n.Up() {
		return
	}
	silent := c.now.Sub(c.contact(n.Info.GetName()).seen)
	if silent <= c.set.Lease+leaseMargin {
		return
	}
	c.freeNode(n, fmt.Sprintf("silent for %s", silent.Round(time.Second)), true)
	c.changeNode(n.Info.GetName(), outbidv1.NodeState_NODE_STATE_LOST, fmt.Sprintf("silent for %s", silent.Round(time.Second)))
}

// leaseMargin covers the delivery of orders and the time that a worker takes to end a process when its lease expires.
const leaseMargin = 2 * time.Second

// messages applies the messages that are not in the ledger yet, in order. If one is missing, the node sends all of
// them again.
func (c *Core) messages(n *state.Node, up *outbidv1.Uplink) {
	first := up.GetFirstSeq()
	if len(up.GetMessages()) == 0 || first > n.SeenSeq+1 {
		return
	}
	known := n.SeenSeq + 1 - first
	if known >= uint64(len(up.GetMessages())) {
		return
	}
	for _, m := range up.GetMessages()[known:] {
		c.message(n, m)
	}
	c.emit(&outbidv1.Event{Kind: &outbidv1.Event_UplinkSeen{UplinkSeen: &outbidv1.UplinkSeen{
		Node: up.GetNode(), Boot: up.GetBoot(), Seq: first + uint64(len(up.GetMessages())) - 1,
	}}})
}

// message applies one message. Messages of a fork whose lease is over are ignored.
func (c *Core) message(n *state.Node, m *outbidv1.UplinkMessage) {
	boundMessage(m)
	ref := m.GetFork()
	s := c.st.Sweeps[ref.GetSweep()]
	if note, ok := m.GetKind().(*outbidv1.UplinkMessage_Note); ok {
		c.workerNote(n, s, ref, note.Note)
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
		c.consolidated(n, s, t, done.Consolidated)
		return
	}
	l := t.Held(ref.GetLeaseId())
	if l == nil {
		return
	}
	switch place := l.PlaceOn(n.Info.GetName()); {
	case place < 0:
		return
	case place > 0 && m.GetEnded() == nil:
		return // only rank 0 reports for a gang
	}
	switch k := m.GetKind().(type) {
	case *outbidv1.UplinkMessage_Began:
		c.emit(&outbidv1.Event{Kind: &outbidv1.Event_ForkStarted{ForkStarted: &outbidv1.ForkStarted{
			Sweep: s.ID, Trial: t.Number, LeaseId: ref.GetLeaseId(), FromStep: k.Began.GetFromStep(),
		}}})
		c.startedWell(s, l)
	case *outbidv1.UplinkMessage_Report:
		c.report(s, t, l, k.Report)
	case *outbidv1.UplinkMessage_Reached:
		c.reached(s, t, l, k.Reached.GetStep())
	case *outbidv1.UplinkMessage_Saved:
		// Reject another trial's object, which this trial would otherwise read and delete.
		if ck, ok := objects.ParseCheckpoint(k.Saved.GetKey()); ok && ck.Of(s.ID, t.Number, l.ID) {
			c.saved(s, t, l, k.Saved)
		}
	case *outbidv1.UplinkMessage_Ended:
		c.ended(s, t, l, n.Info.GetName(), k.Ended)
	}
}

func (c *Core) workerNote(n *state.Node, s *state.Sweep, ref *outbidv1.ForkRef, note *outbidv1.Note) {
	if s == nil {
		return
	}
	trial := ref.GetTrial()
	c.note(s.ID, &trial, note.GetLevel(), "%s (node %s)", note.GetText(), n.Info.GetName())
}

func (c *Core) report(s *state.Sweep, t *state.Trial, l *state.Lease, r *outbidv1.Report) {
	if r.GetSeq() <= l.LastReportSeq || t.Done() || l.Void || c.refuseReport(s, t, r) || c.judgeReport(s, t, r) {
		return
	}
	if l == t.Lead() {
		c.warnOfMetric(s, t, r)
	}
	best, reported := s.Best, s.ReportBytes
	r.LeaseId = l.ID
	r = countForks(t, l, r)
	c.emit(&outbidv1.Event{Kind: &outbidv1.Event_TrialReported{TrialReported: &outbidv1.TrialReported{
		Sweep: s.ID, Trial: t.Number, LeaseId: l.ID, Report: r,
	}}})
	if len(t.Avoided) > 0 || len(c.st.Faulty()) > 0 {
		c.trained(s, t, l, false)
	}
	if best >= 0 && best != s.Best {
		c.drop(s, s.Trials[best])
	}
	c.countReport(s, r)
	if limits := s.Spec.GetLimits(); limits != nil && (limits.Target != nil || limits.GetSteps() > 0) || s.ReportBytes>>20 != reported>>20 {
		c.touched[s.ID] = true
	}
}

// nothingReported is the metric that the SDK sends if a Ray Tune function succeeded without a report. The sweep's
// metric is NaN in that report.
const nothingReported = "reported_nothing"

// warnOfMetric warns the user about the first report that lacks the sweep's metric or has a value that is not finite.
func (c *Core) warnOfMetric(s *state.Sweep, t *state.Trial, r *outbidv1.Report) {
	value, has := r.GetMetrics()[s.Spec.GetMetric()]
	if _, nothing := r.GetMetrics()[nothingReported]; nothing {
		return
	}
	if has && !state.Finite(value) && !t.NaNNoted {
		c.note(s.ID, &t.Number, "warning", "reported %s for %s at step %d: it counts as the worst value", unbounded(value), s.Spec.GetMetric(), r.GetStep())
	}
	if !has && s.Best < 0 && !s.LackNoted && len(r.GetMetrics()) > 0 {
		c.note(s.ID, &t.Number, "warning", "%s: it fails unless a later report has it", missingMetric(s.Spec.GetMetric(), r))
	}
}

// unbounded returns the name of a value that is not finite, as reports write it.
func unbounded(v float64) string {
	switch {
	case math.IsInf(v, 1):
		return "Infinity"
	case math.IsInf(v, -1):
		return "-Infinity"
	default:
		return "NaN"
	}
}

// reached records that the fork reached its target step and waits. A fork that reports an older target receives the
// new one with its next orders.
func (c *Core) reached(s *state.Sweep, t *state.Trial, l *state.Lease, step int64) {
	if l.AtTarget || l.Void || t.Done() || t.Until(l) == 0 || step < t.Until(l) || t.Pausing {
		return
	}
	c.emit(&outbidv1.Event{Kind: &outbidv1.Event_TrialReached{TrialReached: &outbidv1.TrialReached{
		Sweep: s.ID, Trial: t.Number, LeaseId: l.ID, Step: step,
	}}})
	c.trained(s, t, l, true)
}

func (c *Core) saved(s *state.Sweep, t *state.Trial, l *state.Lease, ck *outbidv1.Checkpoint) {
	if l.Void {
		if !slices.ContainsFunc(t.Checkpoints, func(o *outbidv1.Checkpoint) bool { return o.GetKey() == ck.GetKey() }) {
			c.out.Delete = append(c.out.Delete, ck.GetKey())
		}
		return
	}
	best := s.Ranked()
	ck.LeaseId = l.ID
	c.emit(&outbidv1.Event{Kind: &outbidv1.Event_CheckpointSaved{CheckpointSaved: &outbidv1.CheckpointSaved{
		Sweep: s.ID, Trial: t.Number, Checkpoint: ck,
	}}})
	c.drop(s, t)
	now := s.Ranked()
	for _, n := range best {
		if !slices.Contains(now, n) {
			c.drop(s, s.Trials[n])
		}
	}
}

// ended handles the end of a fork's process on its devices.
func (c *Core) ended(s *state.Sweep, t *state.Trial, l *state.Lease, node string, e *outbidv1.ForkEnded) {
	switch e.GetOutcome() {
	case outbidv1.ForkOutcome_FORK_OUTCOME_FAILED:
		c.forkFailed(s, t, l, node, failure{kind: e.GetFailure(), detail: e.GetDetail(), step: e.GetStep()})
	case outbidv1.ForkOutcome_FORK_OUTCOME_EXPIRED:
		c.forkFailed(s, t, l, node, failure{
			kind: outbidv1.FailureKind_FAILURE_KIND_NODE_LOST, detail: "its node was cut off until the lease ran out",
		})
	case outbidv1.ForkOutcome_FORK_OUTCOME_FINISHED:
		c.finished(s, t, l, node, e)
	default:
		c.leave(s, t, l, node, "ended as ordered")
	}
}

// leave ends a lease on one node: the whole lease if it has no other places left. Otherwise the rest of the gang is
// ended too, and the lease with its last place.
func (c *Core) leave(s *state.Sweep, t *state.Trial, l *state.Lease, node, reason string) {
	if !l.Gang() {
		c.endLease(s, t, l, reason)
		return
	}
	c.emit(&outbidv1.Event{Kind: &outbidv1.Event_PlaceEnded{PlaceEnded: &outbidv1.PlaceEnded{
		Sweep: s.ID, Trial: t.Number, LeaseId: l.ID, Node: node, Reason: reason,
	}}})
	if l.Over() {
		c.endLease(s, t, l, reason)
	}
}

// finished handles training code that exited by itself, before its target or without one. A pruned trial need not
// have reported.
func (c *Core) finished(s *state.Sweep, t *state.Trial, l *state.Lease, node string, e *outbidv1.ForkEnded) {
	first := l.Rank0() == node && l == t.Lead() && t.Part(l) == nil && !l.Void
	c.leave(s, t, l, node, "its code ended")
	if t.Done() || !first {
		return // a gang is done when its rank 0 is, and a trial when its leading fork is; a fork in a fork slot counts with the steps that it saved
	}
	step := max(e.GetStep(), t.Step)
	if e.GetPruned() {
		c.endTrial(s, t, outbidv1.TrialState_TRIAL_STATE_STOPPED, fmt.Sprintf("its code pruned it at step %d", step), false)
		return
	}
	reason := fmt.Sprintf("its code ended at step %d", step)
	if t.UntilStep > 0 {
		reason = fmt.Sprintf("its code ended at step %d, before its target of %d", step, t.UntilStep)
	}
	c.endTrial(s, t, outbidv1.TrialState_TRIAL_STATE_COMPLETED, reason, false)
}

// missing ends leases whose fork the node had accepted but has not named for the duration of a lease.
func (c *Core) missing(n *state.Node, up *outbidv1.Uplink) {
	l := c.contact(up.GetNode())
	for _, lease := range slices.Clone(n.Leases) {
		if _, has := l.taken[lease.ID]; has || !lease.Started {
			delete(l.missing, lease.ID)
			continue
		}
		since, noted := l.missing[lease.ID]
		if !noted {
			l.missing[lease.ID] = c.now
			continue
		}
		if c.now.Sub(since) < c.set.Lease {
			continue
		}
		delete(l.missing, lease.ID)
		s := c.st.Sweeps[lease.Sweep]
		c.forkFailed(s, s.Trials[lease.Trial], lease, up.GetNode(), failure{
			kind: outbidv1.FailureKind_FAILURE_KIND_NODE_LOST, detail: "its worker no longer runs it",
		})
	}
}
