package trials

import (
	"fmt"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/outbid-dev/outbid/orchestrator/control/faults"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Failure is how a training process failed.
type Failure struct {
	Kind   outbidv1.FailureKind
	Detail string
	// Step that it had reached, according to its worker.
	Step int64
	// Died reports that the node's worker is gone, which the process may have caused.
	Died bool
}

// suspectAfter is how many nodes may be lost while they run a trial that makes no progress, before the trial must run
// alone. A single loss may be a power cut, and the other trials on the node are innocent.
const suspectAfter = 2

// ForkFailed ends a lease whose process failed, and the trial with it if it has failed too often.
func (ts *Trials) ForkFailed(s *state.Sweep, t *state.Trial, l *state.Lease, node string, f Failure) {
	if l.Gang() && l.Revoking != outbidv1.RevokeKind_REVOKE_KIND_UNSPECIFIED {
		ts.leave(s, t, l, node, f.Detail) // the gang is ending, and so were all its processes
		return
	}
	e := &outbidv1.ForkFailed{
		Sweep: s.ID, Trial: t.Number, LeaseId: l.ID, Kind: f.Kind, Detail: f.Detail, Step: new(max(l.Step, f.Step)), Node: node,
	}
	end, inSlot := "", t.Part(l) != nil
	blame := ts.attribute(s, t, l, e, f.Died)
	if !inSlot { // after fruitless forks the trial runs as one process, whose failures count
		end = ts.gaveUp(s, t, e)
	}
	ts.core.Emit(&outbidv1.Event{Kind: &outbidv1.Event_ForkFailed{ForkFailed: e}})
	blame()
	again := goesOn(t, inSlot)
	if ts.leave(s, t, l, node, f.Detail); t.Held(l.ID) != nil {
		ts.RevokeLease(s, t, l, outbidv1.RevokeKind_REVOKE_KIND_STOP, "another process of its gang failed: "+f.Detail)
	}
	if Alone(t) {
		for _, o := range t.Leases {
			ts.RevokeLease(s, t, o, outbidv1.RevokeKind_REVOKE_KIND_PAUSE, "it must run alone on a node")
		}
	}
	ts.tellFailure(s, t, e, end, again, inSlot)
}

// attribute completes the event of a failure with the things it counts against. It returns a function that blames the
// node, to be called after the event.
func (ts *Trials) attribute(s *state.Sweep, t *state.Trial, l *state.Lease, e *outbidv1.ForkFailed, died bool) (blame func()) {
	blame = func() {}
	ending := s.Done() || s.State == outbidv1.SweepState_SWEEP_STATE_STOPPING
	switch kind := e.GetKind(); {
	case state.CouldNotStart(kind):
		if ts.faults.StartFailed(s, t, e) && !ending {
			blame = func() { ts.faults.Blame(s, t, e) }
		}
	case failedItself(kind) && e.GetNode() != "":
		if t.Part(l) == nil { // a fork's failure does not restart its trial, whose other forks may still use the node
			e.AvoidUntil = timestamppb.New(ts.core.Now().Add(faults.SoftAvoid))
		}
		if !ending {
			blame = func() { ts.faults.SuspectNode(s, t, l, e) }
		}
	case died:
		// Nodes of one fork slot are often lost together, and count once.
		if e.Losses = t.NodeLosses; t.Part(l) == nil || !t.Slot.Lost {
			e.Losses++
		}
		e.Suspected = e.Losses >= suspectAfter
	case kind == outbidv1.FailureKind_FAILURE_KIND_CHECKPOINT && l.Revoking == outbidv1.RevokeKind_REVOKE_KIND_UNSPECIFIED:
		e.Unreadable = StartOf(t, l).GetKey()
	}
	return blame
}

// tellFailure notes the consequences of a failure for the user, and ends the trial if end says why.
func (ts *Trials) tellFailure(s *state.Sweep, t *state.Trial, e *outbidv1.ForkFailed, end, again string, inSlot bool) {
	detail := e.GetDetail()
	switch {
	case t.Done():
		// A stopped program may exit with an error; if a function fails after its end, its code is wrong.
		if e.GetKind() == outbidv1.FailureKind_FAILURE_KIND_ERROR && s.Spec.GetFunction() != nil {
			ts.core.Note(s.ID, &t.Number, "warning", "failed after it had ended: %s", detail)
		}
	case end != "":
		ts.core.Note(s.ID, &t.Number, "error", "failed for good: %s", end)
		ts.End(s, t, outbidv1.TrialState_TRIAL_STATE_FAILED, end, false)
	case e.GetExcused():
		ts.core.Note(s.ID, &t.Number, "warning", "could not be started: %s: %s", detail, ts.triedAgain(s, e))
	case e.GetUnreadable() != "":
		ts.core.Note(s.ID, &t.Number, "warning", "%s: it %s instead", detail, again)
	case e.GetSuspected():
		ts.core.Note(s.ID, &t.Number, "warning", "%s: %d nodes in a row were lost while they ran it, so it %s alone on a node",
			detail, e.GetLosses(), again)
	case e.GetKind() == outbidv1.FailureKind_FAILURE_KIND_NODE_LOST || inSlot:
		ts.core.Note(s.ID, &t.Number, "warning", "%s: it %s", detail, again)
	default:
		ts.core.Note(s.ID, &t.Number, "warning", "%s: it %s (restart %d of %d)", detail, again, t.Restarts, s.Spec.GetMaxRestarts())
	}
}

// goesOn returns how a trial continues after one of its processes has failed.
func goesOn(t *state.Trial, inSlot bool) string {
	switch from := t.From(); {
	case inSlot:
		return "continues from what its forks saved"
	case len(t.Leases) > 1:
		return "continues with its other forks"
	case from != nil:
		return fmt.Sprintf("continues from step %d", from.GetStep())
	default:
		return "starts again from the beginning"
	}
}

// gaveUp returns why a trial is not restarted after a failure that is about to be recorded, or "" if it is.
func (ts *Trials) gaveUp(s *state.Sweep, t *state.Trial, e *outbidv1.ForkFailed) string {
	most := s.Spec.GetMaxRestarts()
	switch {
	case e.GetExcused():
		return ""
	case e.GetUnreadable() != "":
		return "" // each time there is one checkpoint less to start from, so this ends
	case e.GetKind() == outbidv1.FailureKind_FAILURE_KIND_NODE_LOST:
		// Only losses while nothing else ran there count against it.
		if t.Suspected && e.GetLosses()+t.Restarts > most {
			return fmt.Sprintf("%d nodes in a row were lost while they ran it, also when it ran alone: %s", e.GetLosses(), e.GetDetail())
		}
		return ""
	case e.GetKind() == outbidv1.FailureKind_FAILURE_KIND_START:
		return triedEverywhere(t, e)
	case t.Repeats(e) && most > 0 && comesAgain(e.GetKind()) && !ts.onlyThere(s, t, e):
		return fmt.Sprintf("%s; it failed twice in the same way at step %d, so it is not tried again", e.GetDetail(), e.GetStep())
	case t.Restarts+1 > most:
		return e.GetDetail()
	default:
		return ""
	}
}

// comesAgain reports whether a kind of failure that occurred twice would occur a third time. A process that hung may
// have waited for something outside.
func comesAgain(kind outbidv1.FailureKind) bool {
	return kind == outbidv1.FailureKind_FAILURE_KIND_ERROR || kind == outbidv1.FailureKind_FAILURE_KIND_SIGNAL
}

// failedItself reports whether a failure is one of the training process after it had started.
func failedItself(kind outbidv1.FailureKind) bool {
	return comesAgain(kind) || kind == outbidv1.FailureKind_FAILURE_KIND_HANG
}

// onlyThere reports whether a trial failed twice in the same way on one node while another could run it. The node may
// be the cause, so the trial is restarted elsewhere.
func (ts *Trials) onlyThere(s *state.Sweep, t *state.Trial, e *outbidv1.ForkFailed) bool {
	node := e.GetNode()
	return node != "" && t.LastFailure.GetNode() == node && ts.faults.CouldRun(s, func(n *state.Node) bool {
		return n.Info.GetName() != node && n.KeepsOff(ts.core.Now()) == nil
	})
}

// triedAgain returns where a trial that could not be started is tried next.
func (ts *Trials) triedAgain(s *state.Sweep, e *outbidv1.ForkFailed) string {
	if ts.faults.CouldRun(s, func(n *state.Node) bool { return n.Info.GetName() != e.GetNode() && n.KeepsOff(ts.core.Now()) == nil }) {
		return "it is tried on another node"
	}
	return "no other node can run it now, so it waits"
}

// triedEverywhere returns why a trial fails that could not be started on any node.
func triedEverywhere(t *state.Trial, e *outbidv1.ForkFailed) string {
	nodes := 1
	for _, a := range t.Avoided {
		if a.Starts > 0 && a.Node != e.GetNode() {
			nodes++
		}
	}
	if nodes == 1 {
		return e.GetDetail()
	}
	return fmt.Sprintf("could not be started on any of %d nodes; the last time: %s", nodes, e.GetDetail())
}
