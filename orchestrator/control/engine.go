package control

import (
	"fmt"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/control/nodes"
	"github.com/outbid-dev/outbid/orchestrator/control/rounds"
	"github.com/outbid-dev/outbid/orchestrator/control/tuning"
	"github.com/outbid-dev/outbid/orchestrator/limits"
	"github.com/outbid-dev/outbid/orchestrator/sanitize"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// engine folds events and carries them to the parts of the core, which see it through an interface each. It holds the
// data that they share: the state, the time, the outcome of the current step, and which sweeps are to be advanced.
type engine struct {
	st *state.State
	// now is the time of the current step.
	now time.Time
	out Outcome
	// err is set by the first event that cannot be applied. The core is unusable after that.
	err error
	// touched sweeps are advanced before the step ends, later ones in the next step.
	touched, later map[string]bool
	// policyDue asks the policy in this step, because the devices or the trials that need some may have changed.
	policyDue bool
	// answers are the tuners' answers that have not been followed yet. draining reports that Enqueue follows them.
	answers  []tuning.Answer
	draining bool
	// replaying reports that events come from the ledger. following are the events after the current one in its
	// batch.
	replaying bool
	following []*outbidv1.Event

	nodes  *nodes.Nodes
	tuning *tuning.Tuning
	rounds *rounds.Rounds
}

// begin begins a step.
func (e *engine) begin(now time.Time) {
	clear(e.out.Changes)
	e.now, e.out = now, Outcome{Changes: e.out.Changes[:0]}
	e.touched, e.later = e.later, e.touched
}

// Emit decides an event. It applies the event, adds it to the step's batch, and queues the answer of the tuner that
// the event concerns. The outermost Emit then drains the queue.
func (e *engine) Emit(event *outbidv1.Event) {
	if e.err != nil {
		return
	}
	change, answer, err := e.fold(e.now, event)
	if err != nil {
		e.err = fmt.Errorf("deciding: %w", err)
		return
	}
	e.out.Events, e.out.Changes = append(e.out.Events, event), append(e.out.Changes, change)
	e.out.Bytes += sizeOfEvent(event)
	e.Enqueue(answer)
}

// Enqueue adds a tuner's answer to the queue, and drains the queue unless a caller is doing so already. A tuner is not
// notified of the effects of an answer, so the queue rarely holds more than one.
func (e *engine) Enqueue(a tuning.Answer) {
	if a.Empty() {
		return
	}
	e.answers = append(e.answers, a)
	if e.draining {
		return
	}
	e.draining = true
	for len(e.answers) > 0 {
		next := e.answers[0]
		e.answers = e.answers[1:]
		e.tuning.Follow(next)
	}
	e.answers, e.draining = nil, false
}

// fold applies an event: one just decided, read from the ledger at startup, or replayed. It changes the state and
// then passes the event to the parts of the core, always in the same order. It returns the tuner's answer. A live
// caller acts on the answer; on replay its consequences are the next events in the ledger.
func (e *engine) fold(at time.Time, event *outbidv1.Event) (state.Change, tuning.Answer, error) {
	e.now = at
	if err := e.beforeFold(event); err != nil {
		return state.Change{}, tuning.Answer{}, err
	}
	suspects := e.st.CountSuspects()
	change, err := e.st.Fold(at, event)
	if err != nil {
		return state.Change{}, tuning.Answer{}, err
	}
	e.rounds.Mark(change)
	if !e.replaying {
		e.mark(change)
		e.policyDue = e.policyDue || suspects != e.st.CountSuspects() // trials now avoid a node, or no longer do
	}
	if change.SweepGone() {
		delete(e.touched, change.Sweep.ID)
		delete(e.later, change.Sweep.ID)
	}
	answer, err := e.tuning.Tell(change)
	return change, answer, err
}

// beforeFold acts on an event for parts of the core that need the state before it.
func (e *engine) beforeFold(event *outbidv1.Event) error {
	kind := e.st.Kind(event)
	if kind == nil {
		return nil // the state rejects the event
	}
	if e.replaying {
		switch kind.Policy {
		case state.PolicyBegins:
			e.rounds.Rebegin()
		case state.PolicyStarts:
			e.rounds.Forget()
			if err := e.rounds.InstallPast(event.GetOrchestratorStarted().GetPolicy()); err != nil {
				return err
			}
		case state.PolicyDecided:
			e.rounds.Redecide(event.GetRoundDecided(), e.following)
		}
	}
	if kind.Tuner == state.TunerArchives || kind.Tuner == state.TunerWidens || kind.Tuner == state.TunerReturns {
		if s := e.reopened(event); s != nil {
			e.tuning.Reopen(s)
		}
	}
	return nil
}

// reopened returns the sweep that an event continues though it may have ended, or nil.
func (e *engine) reopened(event *outbidv1.Event) *state.Sweep {
	if s := e.st.Sweeps[event.GetSweepExtended().GetSweep()]; s != nil {
		return s
	}
	if s := e.st.Sweeps[event.GetTrialRetried().GetSweep()]; s != nil && s.Done() {
		return s
	}
	s := e.st.Sweeps[event.GetSweepChanged().GetSweep()]
	if s != nil && s.Done() && event.GetSweepChanged().GetState() == outbidv1.SweepState_SWEEP_STATE_RUNNING {
		return s
	}
	return nil
}

// mark records the work that an event causes in the current step.
func (e *engine) mark(change state.Change) {
	if change.Kind.Asks {
		e.policyDue = true
	}
	if change.Kind.Advances {
		e.touched[change.Sweep.ID] = true
	}
	if change.Kind.Orders {
		for _, p := range change.Lease.Places {
			e.nodes.OrdersDue(p.Node)
		}
	}
}

// Now returns the time of the current step.
func (e *engine) Now() time.Time { return e.now }

// Failed reports whether an event could not be applied.
func (e *engine) Failed() bool { return e.err != nil }

// Fail makes the core unusable.
func (e *engine) Fail(err error) { e.err = err }

// Replaying reports whether events come from the ledger.
func (e *engine) Replaying() bool { return e.replaying }

// Touch makes the core advance a sweep before the step ends.
func (e *engine) Touch(sweep string) { e.touched[sweep] = true }

// TouchLater makes the core advance a sweep in the next step.
func (e *engine) TouchLater(sweep string) { e.later[sweep] = true }

// AskPolicy asks the policy in this step.
func (e *engine) AskPolicy() { e.policyDue = true }

// OrdersDue makes the core send a node orders at the end of the step.
func (e *engine) OrdersDue(node string) { e.nodes.OrdersDue(node) }

// Delete deletes objects once the step's events are in the ledger.
func (e *engine) Delete(keys ...string) { e.out.Delete = append(e.out.Delete, keys...) }

// Reply calls f once the step's events are in the ledger.
func (e *engine) Reply(f func()) { e.out.Replies = append(e.out.Replies, f) }

// Events returns the number of events in the current step.
func (e *engine) Events() int { return len(e.out.Events) }

// Full reports whether the current step is so large that work that can wait should be left to the next step.
func (e *engine) Full() bool { return e.out.Bytes > bytesPerStep }

// MarkBatchEnd records that a batch may end here.
func (e *engine) MarkBatchEnd() {
	if n := len(e.out.Events); n > 0 && (len(e.out.Ends) == 0 || e.out.Ends[len(e.out.Ends)-1] != n) {
		e.out.Ends = append(e.out.Ends, n)
	}
}

// Note adds a line for the user to the log of a sweep or a trial.
func (e *engine) Note(sweep string, trial *int32, level, format string, args ...any) {
	e.Emit(&outbidv1.Event{Kind: &outbidv1.Event_Note{Note: &outbidv1.Note{
		Sweep: sweep, Trial: trial, Level: level, Text: sanitize.Text(fmt.Sprintf(format, args...), limits.Note),
	}}})
}
