// Package tuning owns the tuners of sweeps: it passes them events, and turns their actions into events.
package tuning

import (
	"fmt"
	"math"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/control/faults"
	"github.com/outbid-dev/outbid/orchestrator/control/trials"
	"github.com/outbid-dev/outbid/orchestrator/state"
	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/remote"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Core is the part of the core that this package needs.
type Core interface {
	// Now returns the time of the current step.
	Now() time.Time
	// Replaying reports whether events come from the ledger, which already holds what follows from them.
	Replaying() bool
	// Failed reports whether an event could not be applied.
	Failed() bool
	// Emit decides an event.
	Emit(e *outbidv1.Event)
	// Enqueue adds a tuner's answer to the core's queue, which calls Follow.
	Enqueue(a Answer)
	// Note adds a line for the user to the log of a sweep or a trial.
	Note(sweep string, trial *int32, level, format string, args ...any)
	// AskPolicy asks the policy in this step.
	AskPolicy()
	// MarkBatchEnd records that a batch may end here.
	MarkBatchEnd()
	// Full reports whether work that can wait should be left to the next step.
	Full() bool
}

// Sweeps changes the states of sweeps.
type Sweeps interface {
	Change(s *state.Sweep, to outbidv1.SweepState, reason, actor string)
}

// Maker makes a tuner from its sweep's settings, and from a snapshot unless that is nil.
type Maker func(settings tuner.Settings, snapshot []byte) (tuner.Tuner, error)

// Tuning owns tuners.
type Tuning struct {
	core   Core
	st     *state.State
	trials *trials.Trials
	faults *faults.Faults
	sweeps Sweeps
	make   Maker
	// tuners holds the tuners of unfinished sweeps, archived those of finished ones, and unopened the errors of those
	// that could not be started.
	tuners   map[string]tuner.Tuner
	archived map[string]archived
	unopened map[string]error
	// mayCreate names the sweeps whose tuner may create trials if it is asked.
	mayCreate map[string]bool
	// asksOn continues to ask tuners in the next step, because this one was full.
	asksOn bool
	// asking names the sweeps whose remote tuners have unanswered events.
	asking map[string]bool
	// retired names the sweeps whose remote tuners are no longer needed.
	retired []string
}

// New returns the Tuning of a core that decides on a state. Use must be called before the first event.
func New(core Core, st *state.State, t *trials.Trials, f *faults.Faults, make Maker) *Tuning {
	return &Tuning{
		core: core, st: st, trials: t, faults: f, make: make, tuners: map[string]tuner.Tuner{}, archived: map[string]archived{},
		unopened: map[string]error{}, mayCreate: map[string]bool{}, asking: map[string]bool{},
	}
}

// Use sets the part of the core that needs tuning itself.
func (tu *Tuning) Use(sweeps Sweeps) { tu.sweeps = sweeps }

// Tuner returns the tuner of a sweep, or nil if it has failed or the sweep has ended.
func (tu *Tuning) Tuner(sweep string) tuner.Tuner { return tu.tuners[sweep] }

// Answer is the response of a sweep's tuner to an event. It is empty if the tuner was not asked.
type Answer struct {
	sweep   *state.Sweep
	actions []tuner.Action
	err     error
}

// Empty reports whether nothing follows from the answer.
func (a Answer) Empty() bool { return a.err == nil && len(a.actions) == 0 }

// Tell passes an event to its sweep's tuner, if the table of events says so.
func (tu *Tuning) Tell(change state.Change) (Answer, error) {
	s := change.Sweep
	switch change.Kind.Tuner {
	case state.TunerStarts:
		switch {
		case IsRemote(s.Spec):
			tu.tuners[s.ID] = remote.New(s.Spec, change.Event.GetSweepSubmitted().GetTuner())
		case tu.tuners[s.ID] == nil:
			tu.open(s.ID, settingsOf(s), nil)
		}
		tu.noteMayCreate(s)
	case state.TunerArchives:
		if s.Done() {
			delete(tu.unopened, s.ID)
			tu.archive(s)
		}
	case state.TunerForgotten:
		tu.forget(s.ID)
	case state.TunerAsked:
		if tu.core.Replaying() {
			return tu.consult(s, tunerEvent(change)), nil
		}
	case state.TunerAnswers:
		return Answer{}, tu.answered(s, change.Event.GetTunerAnswered())
	}
	if change.News {
		return tu.consult(s, tunerEvent(change)), nil
	}
	return Answer{}, nil
}

// consult passes an event to a sweep's tuner and returns its answer. A tuner that fails is not asked again. A remote
// tuner answers later.
func (tu *Tuning) consult(s *state.Sweep, e tuner.Event) Answer {
	t := tu.tuners[s.ID]
	if t == nil {
		return Answer{} // the tuner failed, and so did the sweep
	}
	if r, ok := t.(*remote.Tuner); ok {
		r.Tell(tu.core.Now(), e)
		tu.asking[s.ID] = true
		return Answer{}
	}
	actions, err := handle(t, e)
	if err != nil {
		delete(tu.tuners, s.ID)
		delete(tu.mayCreate, s.ID)
		return Answer{sweep: s, err: err}
	}
	tu.noteMayCreate(s)
	return Answer{sweep: s, actions: actions}
}

// handle passes an event to a tuner. A panic counts as a failure of that tuner, so that only its sweep fails.
func handle(t tuner.Tuner, e tuner.Event) (actions []tuner.Action, err error) {
	defer func() {
		if p := recover(); p != nil {
			actions, err = nil, fmt.Errorf("panic: %v", p)
		}
	}()
	return t.Handle(e)
}

// Follow acts on a tuner's answer.
func (tu *Tuning) Follow(a Answer) {
	if a.err != nil {
		tu.tunerFailed(a.sweep, a.err)
		return
	}
	tu.act(a.sweep, a.actions)
}

// tunerEvent returns the tuner's form of an event that has been applied.
func tunerEvent(change state.Change) tuner.Event {
	s, t := change.Sweep, change.Trial
	switch k := change.Event.GetKind().(type) {
	case *outbidv1.Event_TrialReported:
		r := k.TrialReported.GetReport()
		return tuner.Reported{
			Trial: tuner.Trial(t.Number), Step: r.GetStep(),
			Metric: comparable(r.GetMetrics()[s.Spec.GetMetric()]), Metrics: r.GetMetrics(),
		}
	case *outbidv1.Event_TrialReached:
		return tuner.Reached{Trial: tuner.Trial(t.Number), Step: k.TrialReached.GetStep(), Metric: comparable(t.Metric), Metrics: t.Last.GetMetrics()}
	case *outbidv1.Event_TrialEnded:
		return tuner.Exited{
			Trial: tuner.Trial(t.Number), Step: t.Step, Metric: comparable(t.Metric),
			Failed: k.TrialEnded.GetState() == outbidv1.TrialState_TRIAL_STATE_FAILED, Metrics: t.Last.GetMetrics(),
		}
	case *outbidv1.Event_SweepExtended:
		return tuner.Extended{Settings: tuner.Settings{Spec: k.SweepExtended.GetSpec()}}
	case *outbidv1.Event_TunerAsked:
		return tuner.Ask{N: int(k.TunerAsked.GetN())}
	default:
		return nil
	}
}

// comparable returns a value for ranking: infinities become NaN, so that they rank as worst in either mode.
func comparable(v float64) float64 {
	if state.Finite(v) {
		return v
	}
	return math.NaN()
}
