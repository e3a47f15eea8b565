// Package remote is a tuner in another process as the control loop knows it: what it was told, what it has answered, and
// what its process needs to go on elsewhere.
//
// A Tuner is a pure value like those in the binary. Being told something is a question, which somebody else brings to the
// process; its answer comes back later, and until then the Tuner says nothing. Questions are numbered from 1, and answered in
// their order.
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

// A Question is something that the tuner was told at a time.
type Question struct {
	Number uint64
	At     time.Time
	Event  tuner.Event
}

// An Answer is what the process said to a question.
type Answer struct {
	Actions []tuner.Action
	Status  tuner.Status
	Outlook tuner.Outlook
}

// A Tuner in another process. It is not safe for concurrent use.
type Tuner struct {
	// spec is what its process is configured with, and snapshot what that goes on from: how the process was when it had
	// answered saved questions. told are those after.
	spec     *outbidv1.SweepSpec
	snapshot []byte
	saved    uint64
	told     []Question
	answered uint64
	// recorded: its answers are told to it. Otherwise an earlier version asked it, and waited for each answer.
	recorded bool
	status   tuner.Status
	outlook  tuner.Outlook
}

var _ tuner.Tuner = (*Tuner)(nil)

// New returns a tuner that was told nothing yet. Opened is what its process said when it was started; nil if the sweep was
// submitted to a version that waited for every answer.
func New(spec *outbidv1.SweepSpec, opened *outbidv1.TunerStatus) *Tuner {
	t := &Tuner{spec: spec, recorded: opened != nil}
	t.take(opened)
	return t
}

// Resume returns a tuner whose process is to go on from a snapshot that an earlier version kept.
func Resume(spec *outbidv1.SweepSpec, snapshot []byte) *Tuner {
	return &Tuner{spec: spec, snapshot: snapshot}
}

// Restore returns the tuner that a Snapshot was made of.
func Restore(data []byte) (*Tuner, error) {
	var m outbidv1.RemoteTuner
	if err := proto.Unmarshal(data, &m); err != nil {
		return nil, fmt.Errorf("%w: %w", tuner.ErrBadSnapshot, err)
	}
	t := &Tuner{
		spec: m.GetSpec(), snapshot: m.GetSnapshot(), saved: m.GetSaved(), answered: m.GetAnswered(), recorded: m.GetRecorded(),
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

// Snapshot implements tuner.Tuner: it is that of the process, and what that was told since.
func (t *Tuner) Snapshot() ([]byte, error) {
	m := &outbidv1.RemoteTuner{
		Spec: t.spec, Snapshot: t.snapshot, Saved: t.saved, Answered: t.answered, Recorded: t.recorded,
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

// Tell takes in something that the tuner should know: a question to it.
func (t *Tuner) Tell(at time.Time, e tuner.Event) {
	t.told = append(t.told, Question{t.last() + 1, at, e})
	if !t.recorded {
		t.answered = t.last()
	}
}

// Handle implements tuner.Tuner: nothing follows until the process has answered.
func (t *Tuner) Handle(e tuner.Event) ([]tuner.Action, error) {
	t.Tell(time.Time{}, e)
	return nil, nil
}

// Recorded says that what the tuner answers is in the ledger from now on. What it was told by a version that waited for every
// answer is answered; how it stands by now is not known until it is asked for trials.
func (t *Tuner) Recorded() {
	if !t.recorded {
		t.recorded, t.status = true, tuner.Status{}
	}
}

// Fresh says whether it was told nothing, or nothing that its process as it started does not get to know.
func (t *Tuner) Fresh() bool { return t.answered == 0 }

// Open are the questions that have no answer yet.
func (t *Tuner) Open() []Question { return t.told[t.answered-t.saved:] }

// Next is the question that is answered next; false if none is open.
func (t *Tuner) Next() (Question, bool) {
	if open := t.Open(); len(open) > 0 {
		return open[0], true
	}
	return Question{}, false
}

// Answer takes in that the process answered a question.
func (t *Tuner) Answer(question uint64, said *outbidv1.TunerStatus) error {
	if next, open := t.Next(); !open || next.Number != question {
		return fmt.Errorf("question %d is answered; %d of %d were", question, t.answered, t.last())
	}
	t.answered = question
	t.take(said)
	return nil
}

// take takes in what the tuner says of itself.
func (t *Tuner) take(said *outbidv1.TunerStatus) {
	t.status = tuner.Status{Waiting: said.GetWaiting(), Exhausted: said.GetExhausted()}
	if said.GetOutlook() != nil {
		t.outlook = tuner.OutlookOf(said.GetOutlook())
	}
}

// Save takes in a snapshot of the process from when it had answered so many questions. What it was told before is forgotten.
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

// A Start is what a process needs to go on.
type Start struct {
	Settings tuner.Settings
	// Snapshot that it goes on from; empty for a fresh start.
	Snapshot []byte
	// Told is what it has answered since, and is told again. Its answers are known.
	Told []Question
	// Answered counts the questions up to there.
	Answered uint64
}

// Start is what a process needs to go on.
func (t *Tuner) Start() Start {
	return Start{
		Settings: tuner.Settings{Spec: t.spec}, Snapshot: t.snapshot, Told: slices.Clone(t.told[:t.answered-t.saved]),
		Answered: t.answered,
	}
}

// Said is what it said last, whatever it was told since.
func (t *Tuner) Said() tuner.Status { return t.status }

// Answered counts the questions that it has answered.
func (t *Tuner) Answered() uint64 { return t.answered }

// Asked says whether it was asked for trials and has not answered yet.
func (t *Tuner) Asked() bool { return t.AskedFor() > 0 }

// AskedFor is how many trials it was asked for in questions that have no answer yet.
func (t *Tuner) AskedFor() int {
	n := 0
	for _, q := range t.Open() {
		if ask, asked := q.Event.(tuner.Ask); asked {
			n += ask.N
		}
	}
	return n
}

// Status implements tuner.Tuner. Nobody need ask it for trials while it was asked; and it is not exhausted while it may yet
// want something.
func (t *Tuner) Status() tuner.Status {
	return tuner.Status{Waiting: t.status.Waiting || t.Asked(), Exhausted: t.status.Exhausted && len(t.Open()) == 0}
}

// Outlook implements tuner.Tuner.
func (t *Tuner) Outlook() tuner.Outlook { return t.outlook }

// Reached returns the open question that says that a trial reached its target; false if there is none.
func (t *Tuner) Reached(trial tuner.Trial) (Question, bool) {
	for _, q := range t.Open() {
		if e, reached := q.Event.(tuner.Reached); reached && e.Trial == trial {
			return q, true
		}
	}
	return Question{}, false
}

// Exited says whether a trial has ended by itself, and the tuner does not know yet.
func (t *Tuner) Exited(trial tuner.Trial) bool {
	return slices.ContainsFunc(t.Open(), func(q Question) bool {
		e, exited := q.Event.(tuner.Exited)
		return exited && e.Trial == trial
	})
}
