package control

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/outbid-dev/outbid/orchestrator/limits"
	"github.com/outbid-dev/outbid/orchestrator/spec"
	"github.com/outbid-dev/outbid/orchestrator/spec/terms"
	"github.com/outbid-dev/outbid/orchestrator/state"
	"github.com/outbid-dev/outbid/orchestrator/tuner"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// A Submit starts a sweep. Done is called with the sweep's ID once the sweep is in the ledger.
type Submit struct {
	// Spec has been checked and includes defaults.
	Spec       *outbidv1.SweepSpec
	Actor, Key string
	// Opened is the status of a remote tuner when it was started, or nil.
	Opened *outbidv1.TunerStatus
	Done   func(id string, err error)
}

func (in Submit) apply(c *Core) {
	if id := c.st.ByKey(in.Key); id != "" {
		c.reply(func() { in.Done(id, nil) })
		return
	}
	if err := checkAgent(c.policy, c.set.Agents, in.Spec); err != nil {
		c.reply(func() { in.Done("", err) })
		return
	}
	if err := checkForks(c.policy, in.Spec); err != nil {
		c.reply(func() { in.Done("", err) })
		return
	}
	if _, err := terms.Of(in.Spec); err != nil {
		c.reply(func() { in.Done("", fmt.Errorf("%w: %w", state.ErrInvalid, err)) })
		return
	}
	if err := c.checkDeadline(in.Spec); err != nil {
		c.reply(func() { in.Done("", err) })
		return
	}
	if err := c.mayBegin(in.Spec); err != nil {
		c.reply(func() { in.Done("", err) })
		return
	}
	id := c.st.NextID(in.Spec.GetName())
	submitted := &outbidv1.SweepSubmitted{Sweep: id, Spec: in.Spec, Actor: in.Actor, IdempotencyKey: in.Key}
	if isRemote(in.Spec) {
		if submitted.Tuner = in.Opened; in.Opened == nil {
			submitted.Tuner = &outbidv1.TunerStatus{}
		}
	} else {
		t, err := c.set.NewTuner(tuner.Settings{Spec: in.Spec}, nil)
		if err != nil {
			err = fmt.Errorf("%w: tuner: %w", state.ErrInvalid, err)
			c.reply(func() { in.Done("", err) })
			return
		}
		c.tuners[id] = t
	}
	c.emit(&outbidv1.Event{Kind: &outbidv1.Event_SweepSubmitted{SweepSubmitted: submitted}})
	c.reply(func() { in.Done(id, nil) })
}

// A Command pauses, resumes or stops a sweep.
type Command struct {
	Sweep   string
	Command outbidv1.SweepCommand
	Actor   string
	Done    func(error)
}

func (in Command) apply(c *Core) {
	err := c.command(in)
	c.reply(func() { in.Done(err) })
}

func (c *Core) command(in Command) error {
	s, err := c.st.Sweep(in.Sweep)
	if err != nil {
		return err
	}
	by := "asked for by " + in.Actor
	switch in.Command {
	case outbidv1.SweepCommand_SWEEP_COMMAND_PAUSE:
		return c.pauseSweep(s, by, in.Actor)
	case outbidv1.SweepCommand_SWEEP_COMMAND_RESUME:
		if s.State == outbidv1.SweepState_SWEEP_STATE_RUNNING {
			return nil
		}
		return c.resumeSweep(s, by, in.Actor)
	case outbidv1.SweepCommand_SWEEP_COMMAND_STOP:
		if s.Done() || s.State == outbidv1.SweepState_SWEEP_STATE_STOPPING {
			return nil
		}
		c.changeSweep(s, outbidv1.SweepState_SWEEP_STATE_STOPPING, by, in.Actor)
	default:
		return fmt.Errorf("%w: command: must be pause, resume or stop, got %s", state.ErrInvalid, in.Command)
	}
	return nil
}

func (c *Core) pauseSweep(s *state.Sweep, by, actor string) error {
	if s.State == outbidv1.SweepState_SWEEP_STATE_PAUSED {
		return nil
	}
	if s.State != outbidv1.SweepState_SWEEP_STATE_RUNNING {
		return conflict(s, "paused", "only a running sweep can be paused")
	}
	c.changeSweep(s, outbidv1.SweepState_SWEEP_STATE_PAUSED, by, actor)
	for _, n := range slices.Clone(s.Running) {
		c.revoke(s, s.Trials[n], outbidv1.RevokeKind_REVOKE_KIND_PAUSE, "the sweep is paused, "+by)
	}
	return nil
}

// resumeSweep continues a paused sweep, or a stopped one with the trials that the stop cancelled.
func (c *Core) resumeSweep(s *state.Sweep, by, actor string) error {
	switch s.State {
	case outbidv1.SweepState_SWEEP_STATE_PAUSED:
	case outbidv1.SweepState_SWEEP_STATE_STOPPING:
		return conflict(s, "resumed", "wait until its trials have saved and it has stopped")
	case outbidv1.SweepState_SWEEP_STATE_STOPPED:
		if reached := c.limitReached(s); reached != "" {
			return conflict(s, "resumed", reached+"; extend it with a higher limit, which also resumes it")
		}
		if err := c.mayBegin(s.Spec); err != nil {
			return err
		}
		if err := c.wake(s, "resumed"); err != nil {
			return err
		}
	default:
		return conflict(s, "resumed", "only a sweep that was paused or stopped can be resumed; extend it by more trials or steps")
	}
	c.changeSweep(s, outbidv1.SweepState_SWEEP_STATE_RUNNING, by, actor)
	return nil
}

// A Delete removes a sweep that has ended. Its objects, logs and reports are deleted once the event is in the ledger.
type Delete struct {
	Sweep, Actor string
	Done         func(state.Deleted, error)
}

func (in Delete) apply(c *Core) {
	d, err := c.delete(in)
	c.reply(func() { in.Done(d, err) })
}

func (c *Core) delete(in Delete) (state.Deleted, error) {
	s, err := c.st.Sweep(in.Sweep)
	if gone, ok := errors.AsType[*state.DeletedError](err); ok {
		return gone.Deleted, nil
	}
	if err != nil {
		return state.Deleted{}, err
	}
	if err := s.CanDelete(); err != nil {
		return state.Deleted{}, err
	}
	c.emit(&outbidv1.Event{Kind: &outbidv1.Event_SweepDeleted{SweepDeleted: &outbidv1.SweepDeleted{
		Sweep: s.ID, Actor: in.Actor,
	}}})
	_, err = c.st.Sweep(in.Sweep)
	if gone, ok := errors.AsType[*state.DeletedError](err); ok {
		return gone.Deleted, nil
	}
	return state.Deleted{}, err
}

// forget drops what the core holds for a deleted sweep outside the state.
func (c *Core) forget(id string) {
	delete(c.tuners, id)
	delete(c.archived, id)
	delete(c.unopened, id)
	delete(c.mayCreate, id)
	delete(c.touched, id)
	delete(c.later, id)
	delete(c.asking, id)
	c.out.Retire = append(c.out.Retire, id)
}

func conflict(s *state.Sweep, what, rule string) error {
	return fmt.Errorf("%w: sweep %s is %s and cannot be %s: %s", state.ErrConflict, s.ID, state.SweepWord(s.State), what, rule)
}

// An Extend gives a sweep more trials, longer training or a wider space.
type Extend struct {
	Request *outbidv1.ExtendSweepRequest
	Actor   string
	// Done receives the trials that restart because their checkpoints were dropped.
	Done func([]*outbidv1.TrainedAgain, error)
}

func (in Extend) apply(c *Core) {
	again, err := c.extend(in)
	c.reply(func() { in.Done(again, err) })
}

func (c *Core) extend(in Extend) ([]*outbidv1.TrainedAgain, error) {
	s, err := c.st.Sweep(in.Request.GetSweep())
	if err != nil {
		return nil, err
	}
	if s.State == outbidv1.SweepState_SWEEP_STATE_STOPPING || s.State == outbidv1.SweepState_SWEEP_STATE_FAILED {
		return nil, conflict(s, "extended", "wait until it has stopped, or submit it again")
	}
	wider, err := spec.Extend(s.Spec, in.Request)
	if err == nil {
		err = spec.CheckSize(wider, c.maxSpec())
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", state.ErrInvalid, err)
	}
	if proto.Equal(wider, s.Spec) {
		return nil, fmt.Errorf("%w: extend: nothing would change; give more trials, longer max_steps, a wider space or other limits", state.ErrInvalid)
	}
	again := c.trainedAgain(s, wider)
	if in.Request.GetPreview() {
		return again, nil
	}
	if s.Done() {
		if err := c.mayBegin(wider); err != nil {
			return nil, err
		}
	}
	if err := c.wake(s, "extended"); err != nil {
		return nil, err
	}
	c.emit(&outbidv1.Event{Kind: &outbidv1.Event_SweepExtended{SweepExtended: &outbidv1.SweepExtended{
		Sweep: s.ID, Spec: wider, Actor: in.Actor,
	}}})
	return again, nil
}

// maxSpec returns the maximum size of a sweep's spec in bytes.
func (c *Core) maxSpec() int {
	if c.set.MaxPayload == nil {
		return limits.Spec(math.MaxInt)
	}
	return limits.Spec(c.set.MaxPayload())
}

// An Ask requests a trial for a client of an external sweep.
type Ask struct {
	Sweep, Client string
	Done          func(*outbidv1.AskTrialResponse, error)
}

func (in Ask) apply(c *Core) {
	if !in.reply(c, true) {
		c.pending = append(c.pending, func() bool { return in.reply(c, false) })
	}
}

// reply answers a client and returns true. It returns false while the answer depends on the sweep's tuner, which may
// be asked or has not answered yet.
func (in Ask) reply(c *Core, ask bool) bool {
	answer, err := c.askTrial(in, ask)
	if t := c.Remote(in.Sweep); t != nil && t.Asked() && err == nil && answer.GetTrial() == nil && takesAnswers(c.st.Sweeps[in.Sweep]) {
		return false
	}
	c.reply(func() { in.Done(answer, err) })
	return true
}

func (c *Core) external(id string) (*state.Sweep, error) {
	s, err := c.st.Sweep(id)
	if err != nil {
		return nil, err
	}
	if s.Spec.GetExternal() == nil {
		return nil, fmt.Errorf("%w: sweep %s runs its trials on workers; ask and tell need a sweep with an external workload", state.ErrConflict, id)
	}
	return s, nil
}

func (c *Core) askTrial(in Ask, ask bool) (*outbidv1.AskTrialResponse, error) {
	s, err := c.external(in.Sweep)
	if err != nil {
		return nil, err
	}
	if s.Done() || s.State == outbidv1.SweepState_SWEEP_STATE_STOPPING {
		return &outbidv1.AskTrialResponse{Exhausted: true}, nil
	}
	if s.State != outbidv1.SweepState_SWEEP_STATE_RUNNING {
		return &outbidv1.AskTrialResponse{}, nil
	}
	if t := c.tuners[s.ID]; ask && len(s.Queued) == 0 && t != nil && room(s) > 0 && !t.Status().Exhausted && !t.Status().Waiting {
		c.ask(s, 1)
	}
	if len(s.Queued) == 0 {
		t := c.tuners[s.ID]
		return &outbidv1.AskTrialResponse{Exhausted: t == nil || t.Status().Exhausted && len(s.Running) == 0}, nil
	}
	t := s.Trials[s.Queued[0]]
	leaseID := c.st.NextLease
	c.emit(&outbidv1.Event{Kind: &outbidv1.Event_TrialAsked{TrialAsked: &outbidv1.TrialAsked{
		Sweep: s.ID, Trial: t.Number, LeaseId: leaseID, Client: in.Client,
	}}})
	return &outbidv1.AskTrialResponse{Trial: c.st.TrialView(s, t), LeaseId: leaseID}, nil
}

// A Tell reports what a client measured.
type Tell struct {
	Request *outbidv1.TellTrialRequest
	Done    func(*outbidv1.TellTrialResponse, error)
}

func (in Tell) apply(c *Core) {
	t, err := c.tellTrial(in.Request)
	if err != nil {
		c.reply(func() { in.Done(nil, err) })
		return
	}
	s := c.st.Sweeps[in.Request.GetSweep()]
	c.advance(s)
	reply := func() bool {
		if c.held(s, t) {
			return false // the tuner decides whether the trial continues
		}
		goOn := t.Held(in.Request.GetLeaseId()) != nil && !t.Done()
		answer := &outbidv1.TellTrialResponse{Trial: c.st.TrialView(s, t), GoOn: goOn}
		c.reply(func() { in.Done(answer, nil) })
		return true
	}
	if !reply() {
		c.pending = append(c.pending, reply)
	}
}

func (c *Core) tellTrial(r *outbidv1.TellTrialRequest) (*state.Trial, error) {
	s, err := c.external(r.GetSweep())
	if err != nil {
		return nil, err
	}
	t, err := s.Trial(r.GetTrial())
	if err != nil {
		return nil, err
	}
	if err := c.tooFast(state.TenantOf(s.Spec)); err != nil && len(r.GetReports()) > 0 {
		return nil, err
	}
	l := t.Held(r.GetLeaseId())
	if l == nil {
		return t, nil // the lease was revoked or ended in the meantime: the client must stop
	}
	for _, report := range r.GetReports() {
		if report.GetSeq() == 0 {
			report.Seq = l.LastReportSeq + 1
		}
		c.report(s, t, l, report)
	}
	switch {
	case t.Held(l.ID) == nil:
	case r.GetError() != "":
		c.forkFailed(s, t, l, "", failure{kind: outbidv1.FailureKind_FAILURE_KIND_ERROR, detail: r.GetError()})
	case t.UntilStep > 0 && t.Step >= t.UntilStep:
		c.reached(s, t, l, t.Step)
	case r.GetFinished():
		c.finished(s, t, l, "", &outbidv1.ForkEnded{Step: t.Step})
	}
	return t, nil
}
