package control_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/outbid-dev/outbid/orchestrator/control"
	"github.com/outbid-dev/outbid/orchestrator/policy/baseline"
	"github.com/outbid-dev/outbid/orchestrator/sim"
	"github.com/outbid-dev/outbid/orchestrator/state"
	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/registry"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// outside returns a built-in tuner as a plugin, whose process cannot be started by a decision, a restore or a replay.
func outside(kind string, maxSteps int64, seed int64) *outbidv1.Tuner {
	set, err := structpb.NewStruct(map[string]any{"kind": kind, "seed": seed})
	if err != nil {
		panic(err)
	}
	return &outbidv1.Tuner{Kind: &outbidv1.Tuner_Plugin{Plugin: &outbidv1.PluginTuner{
		Command: []string{"no-such-program"}, MaxSteps: maxSteps, Settings: set,
	}}}
}

// process is that plugin's process. Like any remote tuner, it gets no events of trials that it had ended.
type process struct {
	tuner.Tuner
	over map[tuner.Trial]bool
}

// startProcess starts the process, from the beginning or from a snapshot.
func startProcess(s tuner.Settings, snapshot []byte) (*process, error) {
	s = within(s)
	p := &process{over: map[tuner.Trial]bool{}}
	var err error
	if p.Tuner, err = registry.New(s); err == nil && len(snapshot) > 0 {
		p.Tuner, err = registry.Restore(s, snapshot)
	}
	return p, err
}

// within returns the settings of the tuner inside the plugin.
func within(s tuner.Settings) tuner.Settings {
	out := s.Spec.GetTuner().GetPlugin()
	set := out.GetSettings().GetFields()
	spec := proto.CloneOf(s.Spec)
	spec.Tuner = sim.Tuner(set["kind"].GetStringValue(), map[string]int64{
		"max_steps": out.GetMaxSteps(), "eta": 2, "trials": 4, "min_steps": 1, "seed": int64(set["seed"].GetNumberValue()),
	})
	return tuner.Settings{Spec: spec}
}

func (p *process) Handle(e tuner.Event) ([]tuner.Action, error) {
	var about tuner.Trial = -1
	switch e := e.(type) {
	case tuner.Reported:
		about = e.Trial
	case tuner.Reached:
		about = e.Trial
	case tuner.Exited:
		about = e.Trial
	case tuner.Extended:
		clear(p.over)
		return p.Tuner.Handle(tuner.Extended{Settings: within(e.Settings)})
	}
	if p.over[about] {
		return nil, nil
	}
	actions, err := p.Tuner.Handle(e)
	for _, a := range actions {
		if end, ok := a.(tuner.End); ok {
			p.over[end.Trial] = true
		}
	}
	return actions, err
}

// answerTo returns a process's answer to a question.
func answerTo(p *process, sweep string, number uint64, e tuner.Event) control.TunerAnswer {
	actions, err := p.Handle(e)
	return control.TunerAnswer{
		Sweep: sweep, Question: number, Actions: actions, Status: p.Status(), Outlook: p.Outlook(), Err: err,
	}
}

// asked holds the process of a sweep, and how many questions it has answered.
type asked struct {
	*process
	answered uint64
}

// answer makes a process answer its next question; some answers come twice, and some with a snapshot. It reports
// whether there was a question.
func (l *life) answer() bool {
	var open []string
	for _, id := range l.core.State().SweepIDs {
		if t := l.core.Remote(id); t != nil && len(t.Open()) > 0 {
			open = append(open, id)
		}
	}
	if len(open) == 0 {
		return false
	}
	id := pick(l, open)
	t := l.core.Remote(id)
	p := l.processes[id]
	if p == nil || p.answered != t.Answered() {
		start := t.Start()
		fresh, err := startProcess(start.Settings, start.Snapshot)
		l.must(err)
		for _, q := range start.Told {
			_, err := fresh.Handle(q.Event)
			l.must(err)
		}
		p = &asked{fresh, start.Answered}
		l.processes[id] = p
	}
	for range 1 + l.n(4) {
		q, more := t.Next()
		if !more {
			break
		}
		in := answerTo(p.process, id, q.Number, q.Event)
		p.answered = q.Number
		if l.n(3) == 0 && len(p.over) == 0 { // the snapshot does not contain which trials are over
			var err error
			in.Snapshot, err = p.Snapshot()
			l.must(err)
		}
		late := in
		late.Question = uint64(l.n(int(q.Number)))
		l.step(late, in, in)
		if t != l.core.Remote(id) || t.Answered() != p.answered {
			break
		}
	}
	return true
}

// forgetSaved removes snapshots of the process: a core restored from the first batch has every question instead.
func (l *life) forgetSaved(r *outbidv1.SweepRecord) {
	if r.GetTuner() == nil || r.GetSpec().GetTuner().GetPlugin() == nil {
		return
	}
	var m outbidv1.RemoteTuner
	l.must(proto.Unmarshal(r.GetTuner(), &m))
	m.Told = m.GetTold()[m.GetAnswered()-m.GetSaved():]
	m.Saved, m.Snapshot, m.Spec = m.GetAnswered(), nil, nil
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(&m)
	l.must(err)
	r.Tuner = data
}

// remoteBench is a bench with a sweep whose tuner is remote.
type remoteBench struct {
	*bench
	t *testing.T
	p *process
}

func newRemoteBench(t *testing.T, devices int, kind string, trials int32) *remoteBench {
	t.Helper()
	core := control.NewCore(settings(), baseline.FIFO{}, state.New())
	b := benchOf(t, core, devices, sim.Sweep("s", "min", trials, outside(kind, 4, 1)))
	p, err := startProcess(core.Remote("s-1").Start().Settings, nil)
	if err != nil {
		t.Fatal(err)
	}
	return &remoteBench{b, t, p}
}

// answer returns the process's answer to the next question.
func (b *remoteBench) answer() control.TunerAnswer {
	b.t.Helper()
	q, open := b.core.Remote("s-1").Next()
	if !open {
		b.t.Fatal("no question is open")
	}
	return answerTo(b.p, "s-1", q.Number, q.Event)
}

func (b *remoteBench) sweep() *state.Sweep { return b.core.State().Sweeps["s-1"] }

// expect checks the numbers of answered questions and of trials.
func (b *remoteBench) expect(answered uint64, trials int) {
	b.t.Helper()
	if got := b.core.Remote("s-1").Answered(); got != answered || len(b.sweep().Trials) != trials {
		b.t.Fatalf("%d answers and %d trials, want %d and %d", got, len(b.sweep().Trials), answered, trials)
	}
}

// Nothing is decided for a sweep until its remote tuner answers, which is asked once. Answers that are out of order,
// duplicates, or for an unknown sweep are dropped.
func TestAnswersCountOnceAndInOrder(t *testing.T) {
	t.Parallel()
	b := newRemoteBench(t, 2, "random", 3)
	b.expect(0, 0)
	for range 3 {
		b.step(control.Tick{}, control.BidderUp{})
	}
	if open := b.core.Remote("s-1").Open(); len(open) != 1 {
		t.Fatalf("it was asked %d times", len(open))
	}
	in := b.answer()
	early, old, elsewhere := in, in, in
	early.Question, old.Question, elsewhere.Sweep = 2, 0, "s-2"
	b.step(early, old, elsewhere)
	b.expect(0, 0)
	b.step(in, in)
	b.expect(1, 2)
	if len(b.forks) != 2 {
		t.Errorf("%d trials run in the step of the answer", len(b.forks))
	}
	b.step(in)
	b.expect(1, 2)
	b.step(control.Command{Sweep: "s-1", Command: outbidv1.SweepCommand_SWEEP_COMMAND_STOP, Actor: "ann", Done: func(error) {}})
	b.expect(1, 2)
}

// A trial that reached its target keeps its devices while its tuner's answer is pending. It continues in place if the
// answer comes soon, and is paused if it takes long.
func TestATrialAtItsTargetWaitsForAnAnswer(t *testing.T) {
	t.Parallel()
	for name, late := range map[string]bool{"soon": false, "late": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newRemoteBench(t, 1, "asha", 1)
			b.step(b.answer())
			trial := b.sweep().Trials[0]
			lease := trial.Lead().ID
			f := b.forks[lease]
			until := trial.UntilStep
			b.say([]*outbidv1.UplinkMessage{
				report(f, 1, until), {Fork: f, Kind: &outbidv1.UplinkMessage_Reached{Reached: &outbidv1.ForkReached{Step: until}}},
			})
			if !trial.AtTarget || trial.Pausing || trial.Lead().Revoking != 0 {
				t.Fatalf("it is paused at once: %+v", trial)
			}
			if late {
				b.now = b.now.Add(3 * time.Second)
				b.step(control.Tick{})
				if !trial.Pausing {
					t.Error("it keeps its devices, though its tuner says nothing")
				}
			}
			b.step(control.TunerAnswer{
				Sweep: "s-1", Question: 2, Actions: []tuner.Action{tuner.Train{Trial: 0, UntilStep: until + 1, Reason: "on"}},
			})
			if sent := slices.ContainsFunc(b.out.Orders, func(o *outbidv1.Orders) bool { return o.GetNode() == "n1" }); !late && !sent {
				t.Error("its worker hears of the answer only when it is heard of itself")
			}
			b.step(control.Tick{})
			if trial.UntilStep != until+1 || trial.AtTarget || trial.Pausing {
				t.Errorf("it does not go on: %+v", trial)
			}
			if held := trial.Lead(); !late && (held == nil || held.ID != lease || held.Revoking != 0) {
				t.Errorf("its lease %d is now %+v", lease, held)
			}
		})
	}
}

// A trial that ends while its tuner is asked about it is not reopened by the answer.
func TestAnAnswerAboutATrialThatHasEnded(t *testing.T) {
	t.Parallel()
	for name, action := range map[string]tuner.Action{
		"train": tuner.Train{Trial: 0, UntilStep: 9, Reason: "on"}, "pause": tuner.Pause{Trial: 0}, "end": tuner.End{Trial: 0, Completed: true},
		"clone": tuner.Clone{Trial: 0, Source: 0, UntilStep: 9},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newRemoteBench(t, 1, "asha", 1)
			b.step(b.answer())
			trial := b.sweep().Trials[0]
			f := b.forks[trial.Lead().ID]
			b.say([]*outbidv1.UplinkMessage{
				report(f, 1, trial.UntilStep),
				{Fork: f, Kind: &outbidv1.UplinkMessage_Reached{Reached: &outbidv1.ForkReached{Step: trial.UntilStep}}},
				{Fork: f, Kind: &outbidv1.UplinkMessage_Ended{Ended: &outbidv1.ForkEnded{Outcome: outbidv1.ForkOutcome_FORK_OUTCOME_FINISHED, Step: trial.UntilStep}}},
			})
			if !trial.Done() {
				t.Fatalf("it is %s", state.TrialWord(trial.State))
			}
			b.step(control.TunerAnswer{Sweep: "s-1", Question: 2, Actions: []tuner.Action{action}})
			if b.core.Remote("s-1") == nil || !trial.Done() {
				t.Errorf("the sweep is %s (%s), the trial %s", state.SweepWord(b.sweep().State), b.sweep().Reason, state.TrialWord(trial.State))
			}
		})
	}
}

// A sweep does not end while its tuner has a question, because it may create more trials.
func TestASweepIsNotOverWithOpenQuestions(t *testing.T) {
	t.Parallel()
	b := newRemoteBench(t, 1, "random", 1)
	b.step(b.answer())
	trial := b.sweep().Trials[0]
	f := b.forks[trial.Lead().ID]
	b.step(control.TunerAnswer{Sweep: "s-1", Question: 2, Status: tuner.Status{Waiting: true, Exhausted: true}})
	b.say([]*outbidv1.UplinkMessage{
		report(f, 1, 1), {Fork: f, Kind: &outbidv1.UplinkMessage_Ended{Ended: &outbidv1.ForkEnded{Outcome: outbidv1.ForkOutcome_FORK_OUTCOME_FINISHED, Step: 1}}},
	})
	for range 3 {
		b.step(control.Tick{})
	}
	if b.sweep().Done() || len(b.core.Remote("s-1").Open()) == 0 {
		t.Fatalf("the sweep is %s, with %d questions", state.SweepWord(b.sweep().State), len(b.core.Remote("s-1").Open()))
	}
	for b.core.Remote("s-1") != nil {
		q, open := b.core.Remote("s-1").Next()
		if !open {
			break
		}
		b.step(control.TunerAnswer{Sweep: "s-1", Question: q.Number, Status: tuner.Status{Waiting: true, Exhausted: true}})
	}
	if state.SweepWord(b.sweep().State) != "done" {
		t.Errorf("the sweep is %s", state.SweepWord(b.sweep().State))
	}
}

// Answers that arrive after a sweep was stopped are dropped, and the questions are asked again when it continues.
func TestAStoppedSweepIsAskedAgain(t *testing.T) {
	t.Parallel()
	b := newRemoteBench(t, 1, "random", 3)
	command := func(what outbidv1.SweepCommand) {
		t.Helper()
		b.step(control.Command{Sweep: "s-1", Command: what, Actor: "ann", Done: func(err error) {
			if err != nil {
				t.Error(err)
			}
		}})
	}
	in := b.answer()
	command(outbidv1.SweepCommand_SWEEP_COMMAND_STOP)
	if !slices.Contains(b.out.Retire, "s-1") {
		t.Error("its tuner is asked on")
	}
	b.step(in)
	if state.SweepWord(b.sweep().State) != "stopped" || len(b.sweep().Trials) != 0 {
		t.Fatalf("it is %s, with %d trials", state.SweepWord(b.sweep().State), len(b.sweep().Trials))
	}
	command(outbidv1.SweepCommand_SWEEP_COMMAND_RESUME)
	if !slices.Contains(b.out.Ask, "s-1") {
		t.Error("its tuner is not asked again")
	}
	b.step(in)
	b.expect(1, 1)
}

// A tuner that fails makes its sweep fail, whether by an error or by an invalid action.
func TestATunerThatFails(t *testing.T) {
	t.Parallel()
	for name, in := range map[string]control.TunerAnswer{
		"error":    {Err: errors.New("it took more than 30s to handle an event")},
		"nonsense": {Actions: []tuner.Action{tuner.Train{Trial: 7, UntilStep: 1}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newRemoteBench(t, 1, "random", 3)
			in.Sweep, in.Question = "s-1", 1
			b.step(in)
			b.step(control.Tick{})
			if state.SweepWord(b.sweep().State) != "failed" || !strings.HasPrefix(b.sweep().Reason, "the tuner failed: ") {
				t.Errorf("the sweep is %s: %s", state.SweepWord(b.sweep().State), b.sweep().Reason)
			}
			b.step(b.retried())
			if len(b.sweep().Trials) != 0 {
				t.Error("an answer that came after all counted")
			}
		})
	}
}

// retried returns an answer that comes too late.
func (b *remoteBench) retried() control.TunerAnswer {
	return control.TunerAnswer{Sweep: "s-1", Question: 1, Actions: []tuner.Action{tuner.Create{UntilStep: 1}}}
}

// Clients of an external sweep wait for its tuner's answers that concern them.
func TestClientsWaitForATunersAnswer(t *testing.T) {
	t.Parallel()
	core := control.NewCore(settings(), baseline.FIFO{}, state.New())
	spec := sim.Sweep("s", "min", 2, outside("asha", 4, 1))
	spec.Workload, spec.Resources = &outbidv1.SweepSpec_External{External: &outbidv1.External{}}, nil
	b := benchOf(t, core, 1, spec)
	var got *outbidv1.AskTrialResponse
	ask := control.Ask{Sweep: "s-1", Client: "c", Done: func(r *outbidv1.AskTrialResponse, err error) {
		if got = r; err != nil {
			t.Error(err)
		}
	}}
	b.step(ask)
	if got != nil {
		t.Fatalf("it was answered before the tuner was heard: %v", got)
	}
	p, err := startProcess(core.Remote("s-1").Start().Settings, nil)
	if err != nil {
		t.Fatal(err)
	}
	rb := &remoteBench{b, t, p}
	b.step(rb.answer())
	if got.GetTrial() == nil {
		t.Fatalf("it was answered %v", got)
	}
	var told *outbidv1.TellTrialResponse
	step := got.GetTrial().GetUntilStep()
	b.step(control.Tell{Request: &outbidv1.TellTrialRequest{
		Sweep: "s-1", Trial: 0, LeaseId: got.GetLeaseId(), Reports: []*outbidv1.Report{{Step: step, Metrics: map[string]float64{"loss": 1}}},
	}, Done: func(r *outbidv1.TellTrialResponse, err error) {
		if told = r; err != nil {
			t.Error(err)
		}
	}})
	if told != nil {
		t.Fatalf("it was told %v before the tuner was heard", told)
	}
	b.step(control.TunerAnswer{Sweep: "s-1", Question: 2, Actions: []tuner.Action{tuner.Train{Trial: 0, UntilStep: step + 1}}})
	if !told.GetGoOn() || told.GetTrial().GetUntilStep() != step+1 {
		t.Errorf("it was told %v", told)
	}
}
