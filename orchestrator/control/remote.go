package control

import (
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/outbid-dev/outbid/orchestrator/state"
	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/remote"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// isRemote reports whether a sweep's tuner runs in its own process.
func isRemote(spec *outbidv1.SweepSpec) bool { return spec.GetTuner().GetPlugin() != nil }

// Remote returns the remote tuner of a sweep, or nil if it is not remote or failed. The caller must not change it.
func (c *Core) Remote(sweep string) *remote.Tuner {
	t, _ := c.tuners[sweep].(*remote.Tuner)
	return t
}

// newTuner makes a tuner from its sweep's settings, and from a snapshot unless that is nil. It does not start the
// process of a remote tuner; its client does.
func (c *Core) newTuner(spec *outbidv1.SweepSpec, snapshot []byte) (tuner.Tuner, error) {
	switch {
	case !isRemote(spec):
		return c.set.NewTuner(tuner.Settings{Spec: spec}, snapshot)
	case snapshot == nil:
		return remote.New(spec, nil), nil
	default:
		return remote.Restore(snapshot)
	}
}

// TunerAnswer is a remote tuner's answer to a question. It counts if its sweep is active and the question is the next
// one to be answered. Duplicates, late answers and those of earlier processes are dropped. Questions that were open
// when a sweep ended are asked again when it continues.
type TunerAnswer struct {
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

func (in TunerAnswer) apply(c *Core) {
	s, t := c.st.Sweeps[in.Sweep], c.Remote(in.Sweep)
	if s == nil || t == nil || !takesAnswers(s) {
		return
	}
	q, open := t.Next()
	if !open || q.Number != in.Question {
		return
	}
	if in.Err != nil {
		c.tunerFailed(s, in.Err)
		return
	}
	before := t.Said()
	said := &outbidv1.TunerStatus{Waiting: in.Status.Waiting, Exhausted: in.Status.Exhausted}
	if o := in.Outlook.Message(); !proto.Equal(o, t.Outlook().Message()) {
		said.Outlook = o
	}
	c.emit(tunerAnswered(in.Sweep, in.Question, said, ""))
	t.Save(in.Question, in.Snapshot)
	switch q.Event.(type) {
	case tuner.Reported: // a report alone does not change the demand
		c.scheduleDue = c.scheduleDue || t.Said() != before
	case tuner.Ask: // a tuner without trials is not asked again at once
		c.scheduleDue = c.scheduleDue || len(in.Actions) > 0
	default:
		c.scheduleDue = true
	}
	c.enqueue(answer{sweep: s, actions: in.Actions})
}

func tunerAnswered(sweep string, question uint64, said *outbidv1.TunerStatus, failure string) *outbidv1.Event {
	return &outbidv1.Event{Kind: &outbidv1.Event_TunerAnswered{TunerAnswered: &outbidv1.TunerAnswered{
		Sweep: sweep, Question: question, Status: said, Error: failure,
	}}}
}

// takesAnswers reports whether a sweep follows its tuner. A stopping sweep does not: open questions are asked again
// if it continues.
func takesAnswers(s *state.Sweep) bool {
	return s.State == outbidv1.SweepState_SWEEP_STATE_RUNNING || s.State == outbidv1.SweepState_SWEEP_STATE_PAUSED
}

// answered records that a remote tuner has answered.
func (c *Core) answered(s *state.Sweep, e *outbidv1.TunerAnswered) error {
	t := c.Remote(s.ID)
	if t == nil {
		return nil // the tuner failed, and so did the sweep
	}
	if e.GetError() != "" {
		c.dropTuner(s)
		return nil
	}
	c.noteMayCreate(s)
	return t.Answer(e.GetQuestion(), e.GetStatus())
}

// dropTuner removes a tuner that failed.
func (c *Core) dropTuner(s *state.Sweep) {
	delete(c.tuners, s.ID)
	delete(c.mayCreate, s.ID)
	c.out.Retire = append(c.out.Retire, s.ID)
}

// overtaken reports whether an action of a remote tuner names a trial that has ended since the question.
func (c *Core) overtaken(s *state.Sweep, action tuner.Action) bool {
	t := c.Remote(s.ID)
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

// held reports whether a trial that reached its target keeps its devices because its tuner has not answered yet.
func (c *Core) held(s *state.Sweep, t *state.Trial) bool {
	r := c.Remote(s.ID)
	if r == nil || s.State != outbidv1.SweepState_SWEEP_STATE_RUNNING || !t.AtTarget || t.Pausing || t.Done() || len(t.Leases) == 0 {
		return false
	}
	q, open := r.Reached(tuner.Trial(t.Number))
	return open && c.now.Sub(q.At) < heldFor
}

// anyHeld reports whether a sweep has such trials.
func (c *Core) anyHeld(s *state.Sweep) bool {
	r := c.Remote(s.ID)
	return r != nil && slices.ContainsFunc(r.Open(), func(q remote.Question) bool { _, reached := q.Event.(tuner.Reached); return reached })
}

// questions lists the sweeps whose remote tuners have open questions.
func (c *Core) questions() []string {
	var ask []string
	for _, id := range sortedKeys(c.asking) {
		if t := c.Remote(id); t != nil && takesAnswers(c.st.Sweeps[id]) && len(t.Open()) > 0 {
			ask = append(ask, id)
		}
	}
	clear(c.asking)
	return ask
}

// resume replies to commands that waited for a tuner's answer, if that has come.
func (c *Core) resume() {
	waiting := c.pending
	c.pending = nil
	for _, reply := range waiting {
		if !reply() {
			c.pending = append(c.pending, reply)
		}
	}
}
