package tuning

import (
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/outbid-dev/outbid/orchestrator/state"
	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/remote"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// IsRemote reports whether a sweep's tuner runs in its own process.
func IsRemote(spec *outbidv1.SweepSpec) bool { return spec.GetTuner().GetPlugin() != nil }

// Remote returns the remote tuner of a sweep, or nil if it is not remote or failed. The caller must not change it.
func (tu *Tuning) Remote(sweep string) *remote.Tuner {
	t, _ := tu.tuners[sweep].(*remote.Tuner)
	return t
}

// RemoteAnswer is a remote tuner's answer to a question.
type RemoteAnswer struct {
	Sweep    string
	Question uint64
	Actions  []tuner.Action
	Status   tuner.Status
	Outlook  tuner.Outlook
	// Err is why the tuner failed, and the sweep with it.
	Err error
	// Snapshot of the process after that answer, or nil if none was taken.
	Snapshot []byte
}

// Accept accepts an answer if its sweep is active and the question is the next one to be answered. Duplicates, late
// answers and those of earlier processes are dropped. Questions that were open when a sweep ended are asked again when
// it continues.
func (tu *Tuning) Accept(in RemoteAnswer) {
	s, t := tu.st.Sweeps[in.Sweep], tu.Remote(in.Sweep)
	if s == nil || t == nil || !TakesAnswers(s) {
		return
	}
	q, open := t.Next()
	if !open || q.Number != in.Question {
		return
	}
	if in.Err != nil {
		tu.tunerFailed(s, in.Err)
		return
	}
	before := t.Said()
	said := &outbidv1.TunerStatus{Waiting: in.Status.Waiting, Exhausted: in.Status.Exhausted}
	if o := in.Outlook.Message(); !proto.Equal(o, t.Outlook().Message()) {
		said.Outlook = o
	}
	tu.core.Emit(tunerAnswered(in.Sweep, in.Question, said, ""))
	t.Save(in.Question, in.Snapshot)
	asks := true
	switch q.Event.(type) {
	case tuner.Reported: // a report alone does not change the demand
		asks = t.Said() != before
	case tuner.Ask: // a tuner without trials is not asked again at once
		asks = len(in.Actions) > 0
	}
	if asks {
		tu.core.AskPolicy()
	}
	tu.core.Enqueue(Answer{sweep: s, actions: in.Actions})
}

func tunerAnswered(sweep string, question uint64, said *outbidv1.TunerStatus, failure string) *outbidv1.Event {
	return &outbidv1.Event{Kind: &outbidv1.Event_TunerAnswered{TunerAnswered: &outbidv1.TunerAnswered{
		Sweep: sweep, Question: question, Status: said, Error: failure,
	}}}
}

// TakesAnswers reports whether a sweep follows its tuner. A stopping sweep does not: open questions are asked again
// if it continues.
func TakesAnswers(s *state.Sweep) bool {
	return s.State == outbidv1.SweepState_SWEEP_STATE_RUNNING || s.State == outbidv1.SweepState_SWEEP_STATE_PAUSED
}

// answered records that a remote tuner has answered.
func (tu *Tuning) answered(s *state.Sweep, e *outbidv1.TunerAnswered) error {
	t := tu.Remote(s.ID)
	if t == nil {
		return nil // the tuner failed, and so did the sweep
	}
	if e.GetError() != "" {
		tu.dropTuner(s)
		return nil
	}
	tu.noteMayCreate(s)
	return t.Answer(e.GetQuestion(), e.GetStatus())
}

// overtaken reports whether an action of a tuner that may be remote names a trial that has ended since the question.
func overtaken(t *remote.Tuner, action tuner.Action) bool {
	if t == nil {
		return false
	}
	switch a := action.(type) {
	case tuner.Train:
		return t.Exited(a.Trial)
	case tuner.Pause:
		return t.Exited(a.Trial)
	case tuner.End:
		return t.Exited(a.Trial)
	case tuner.Clone:
		return t.Exited(a.Trial)
	default:
		return false
	}
}

// heldFor is how long a trial that reached its target keeps its devices while its remote tuner has not answered.
// After that it is paused, like trials whose tuner waits.
const heldFor = 2 * time.Second

// Held reports whether a trial that reached its target keeps its devices because its tuner has not answered yet.
func (tu *Tuning) Held(s *state.Sweep, t *state.Trial) bool {
	r := tu.Remote(s.ID)
	if r == nil || s.State != outbidv1.SweepState_SWEEP_STATE_RUNNING || !t.AtTarget || t.Pausing || t.Done() || len(t.Leases) == 0 {
		return false
	}
	q, open := r.Reached(tuner.Trial(t.Number))
	return open && tu.core.Now().Sub(q.At) < heldFor
}

// AnyHeld reports whether a sweep has such trials.
func (tu *Tuning) AnyHeld(s *state.Sweep) bool {
	r := tu.Remote(s.ID)
	return r != nil && slices.ContainsFunc(r.Open(), func(q remote.Question) bool { _, reached := q.Event.(tuner.Reached); return reached })
}

// Questions lists the sweeps whose remote tuners have open questions.
func (tu *Tuning) Questions() []string {
	var ask []string
	for _, id := range slices.Sorted(maps.Keys(tu.asking)) {
		if t := tu.Remote(id); t != nil && TakesAnswers(tu.st.Sweeps[id]) && len(t.Open()) > 0 {
			ask = append(ask, id)
		}
	}
	clear(tu.asking)
	return ask
}
