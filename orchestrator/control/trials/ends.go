package trials

import (
	"fmt"

	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Ended handles the end of a fork's process on its devices.
func (ts *Trials) Ended(s *state.Sweep, t *state.Trial, l *state.Lease, node string, e *outbidv1.ForkEnded) {
	switch e.GetOutcome() {
	case outbidv1.ForkOutcome_FORK_OUTCOME_FAILED:
		ts.ForkFailed(s, t, l, node, Failure{Kind: e.GetFailure(), Detail: e.GetDetail(), Step: e.GetStep()})
	case outbidv1.ForkOutcome_FORK_OUTCOME_EXPIRED:
		ts.ForkFailed(s, t, l, node, Failure{
			Kind: outbidv1.FailureKind_FAILURE_KIND_NODE_LOST, Detail: "its node was cut off until the lease ran out",
		})
	case outbidv1.ForkOutcome_FORK_OUTCOME_FINISHED:
		ts.Finished(s, t, l, node, e)
	default:
		ts.leave(s, t, l, node, "ended as ordered")
	}
}

// Finished handles training code that exited by itself, before its target or without one. A pruned trial need not
// have reported.
func (ts *Trials) Finished(s *state.Sweep, t *state.Trial, l *state.Lease, node string, e *outbidv1.ForkEnded) {
	first := l.Rank0() == node && l == t.Lead() && t.Part(l) == nil && !l.Void
	ts.leave(s, t, l, node, "its code ended")
	if t.Done() || !first {
		return // a gang is done when its rank 0 is, and a trial when its leading fork is; a fork in a fork slot counts with the steps that it saved
	}
	step := max(e.GetStep(), t.Step)
	if e.GetPruned() {
		ts.End(s, t, outbidv1.TrialState_TRIAL_STATE_STOPPED, fmt.Sprintf("its code pruned it at step %d", step), false)
		return
	}
	reason := fmt.Sprintf("its code ended at step %d", step)
	if t.UntilStep > 0 {
		reason = fmt.Sprintf("its code ended at step %d, before its target of %d", step, t.UntilStep)
	}
	ts.End(s, t, outbidv1.TrialState_TRIAL_STATE_COMPLETED, reason, false)
}
