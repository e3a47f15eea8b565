// Package remote represents a tuner in another process within the control loop: the events sent to it, the answers
// received, and the state that a new process needs.
//
// A Tuner is deterministic, like the built-in tuners. An event becomes a question, which the caller sends to the
// process. The answer arrives later, and until then the Tuner returns no actions. Questions are numbered from 1 and
// answered in order.
package remote

import (
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/outbid-dev/outbid/orchestrator/tuner"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// A Question is an event and the time when it was sent to the tuner.
type Question struct {
	Number uint64
	At     time.Time
	Event  tuner.Event
}

// An Answer is the process's answer to a question.
type Answer struct {
	Actions []tuner.Action
	Status  tuner.Status
	Outlook tuner.Outlook
}

// A Tuner is a tuner in another process. It is not safe for concurrent use.
type Tuner struct {
	// spec and snapshot configure a new process. The snapshot is the process's state after saved answers, and told are
	// the questions after those.
	spec     *outbidv1.SweepSpec
	snapshot []byte
	saved    uint64
	told     []Question
	answered uint64
	status   tuner.Status
	outlook  tuner.Outlook
}

var _ tuner.Tuner = (*Tuner)(nil)

// New returns a tuner without questions. opened is the initial status of its process.
func New(spec *outbidv1.SweepSpec, opened *outbidv1.TunerStatus) *Tuner {
	t := &Tuner{spec: spec}
	t.take(opened)
	return t
}

// Restore returns the tuner of a Snapshot.
func Restore(data []byte) (*Tuner, error) {
	var m outbidv1.RemoteTuner
	if err := proto.Unmarshal(data, &m); err != nil {
		return nil, fmt.Errorf("%w: %w", tuner.ErrBadSnapshot, err)
	}
	t := &Tuner{
		spec: m.GetSpec(), snapshot: m.GetSnapshot(), saved: m.GetSaved(), answered: m.GetAnswered(),
	}
	t.take(m.GetStatus())
	for i, q := range m.GetTold() {
		e, err := FromEvent(q.GetEvent())
		if err != nil {
			return nil, fmt.Errorf("%w: %w", tuner.ErrBadSnapshot, err)
		}
		t.told = append(t.told, Question{t.saved + uint64(i) + 1, q.GetTime().AsTime(), e})
	}
	if t.spec == nil || t.answered < t.saved || t.answered > t.last() {
		return nil, tuner.ErrBadSnapshot
	}
	return t, nil
}

// Snapshot implements tuner.Tuner. It contains the snapshot of the process and the questions since.
func (t *Tuner) Snapshot() ([]byte, error) {
	m := &outbidv1.RemoteTuner{
		Spec: t.spec, Snapshot: t.snapshot, Saved: t.saved, Answered: t.answered,
		Status: &outbidv1.TunerStatus{Waiting: t.status.Waiting, Exhausted: t.status.Exhausted, Outlook: t.outlook.Message()},
	}
	for _, q := range t.told {
		e, err := ToEvent(q.Event)
		if err != nil {
			return nil, err
		}
		m.Told = append(m.Told, &outbidv1.TunerQuestion{Time: timestamppb.New(q.At), Event: e})
	}
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode a snapshot: %w", err)
	}
	return data, nil
}

func (t *Tuner) last() uint64 { return t.saved + uint64(len(t.told)) }

// Tell adds an event as a question.
func (t *Tuner) Tell(at time.Time, e tuner.Event) {
	t.told = append(t.told, Question{t.last() + 1, at, e})
}

// Handle implements tuner.Tuner. It returns no actions, because the process answers later.
func (t *Tuner) Handle(e tuner.Event) ([]tuner.Action, error) {
	t.Tell(time.Time{}, e)
	return nil, nil
}

// Fresh reports whether no question was answered, so that a new process needs no restored state.
func (t *Tuner) Fresh() bool { return t.answered == 0 }

// Open returns the questions without an answer.
func (t *Tuner) Open() []Question { return t.told[t.answered-t.saved:] }

// Next returns the question that is answered next, or false if none is open.
func (t *Tuner) Next() (Question, bool) {
	if open := t.Open(); len(open) > 0 {
		return open[0], true
	}
	return Question{}, false
}

// Answer records that the process answered a question.
func (t *Tuner) Answer(question uint64, said *outbidv1.TunerStatus) error {
	if next, open := t.Next(); !open || next.Number != question {
		return fmt.Errorf("got an answer to question %d, which is not the next one; %d of %d are answered", question, t.answered, t.last())
	}
	t.answered = question
	t.take(said)
	return nil
}

// take stores the status and outlook in an answer.
func (t *Tuner) take(said *outbidv1.TunerStatus) {
	t.status = tuner.Status{Waiting: said.GetWaiting(), Exhausted: said.GetExhausted()}
	if said.GetOutlook() != nil {
		t.outlook = tuner.OutlookOf(said.GetOutlook())
	}
}

// Save stores a snapshot of the process after the given number of answers and drops the questions before it.
func (t *Tuner) Save(answered uint64, snapshot []byte) {
	if answered <= t.saved || answered > t.answered || len(snapshot) == 0 {
		return
	}
	n := answered - t.saved
	for _, q := range t.told[:n] {
		if e, extended := q.Event.(tuner.Extended); extended {
			t.spec = e.Settings.Spec
		}
	}
	t.told, t.saved, t.snapshot = slices.Clone(t.told[n:]), answered, snapshot
}

// A Start is the state that a new process needs.
type Start struct {
	Settings tuner.Settings
	// Snapshot is the state to restore; empty for a new tuner.
	Snapshot []byte
	// Told are the questions answered since the snapshot. They are sent again; their answers are known.
	Told []Question
	// Answered is the number of answered questions, including Told.
	Answered uint64
}

// Start returns the state that a new process needs.
func (t *Tuner) Start() Start {
	return Start{
		Settings: tuner.Settings{Spec: t.spec}, Snapshot: t.snapshot, Told: slices.Clone(t.told[:t.answered-t.saved]),
		Answered: t.answered,
	}
}

// Said returns the status in the last answer.
func (t *Tuner) Said() tuner.Status { return t.status }

// Answered returns the number of answered questions.
func (t *Tuner) Answered() uint64 { return t.answered }

// Asked reports whether a request for trials is unanswered.
func (t *Tuner) Asked() bool { return t.AskedFor() > 0 }

// AskedFor returns the number of trials requested in unanswered questions.
func (t *Tuner) AskedFor() int {
	n := 0
	for _, q := range t.Open() {
		if ask, asked := q.Event.(tuner.Ask); asked {
			n += ask.N
		}
	}
	return n
}

// Status implements tuner.Tuner. The tuner is waiting while a request for trials is unanswered, and not exhausted while
// any question is.
func (t *Tuner) Status() tuner.Status {
	return tuner.Status{Waiting: t.status.Waiting || t.Asked(), Exhausted: t.status.Exhausted && len(t.Open()) == 0}
}

// Outlook implements tuner.Tuner.
func (t *Tuner) Outlook() tuner.Outlook { return t.outlook }

// Reached returns the open question with the Reached of a trial, or false if no question has it.
func (t *Tuner) Reached(trial tuner.Trial) (Question, bool) {
	for _, q := range t.Open() {
		if e, reached := q.Event.(tuner.Reached); reached && e.Trial == trial {
			return q, true
		}
	}
	return Question{}, false
}

// Exited reports whether the Exited of a trial is unanswered.
func (t *Tuner) Exited(trial tuner.Trial) bool {
	return slices.ContainsFunc(t.Open(), func(q Question) bool {
		e, exited := q.Event.(tuner.Exited)
		return exited && e.Trial == trial
	})
}
