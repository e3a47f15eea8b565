package tunertest_test

import (
	"strings"
	"testing"

	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/registry"
	"github.com/outbid-dev/outbid/orchestrator/tuner/tunertest"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// A liar answers like a tuner, except for one change.
type liar struct {
	tuner.Tuner
	change func(tuner.Event, []tuner.Action) []tuner.Action
	status func(tuner.Status) tuner.Status
}

func (l liar) Handle(e tuner.Event) ([]tuner.Action, error) {
	actions, err := l.Tuner.Handle(e)
	if l.change != nil {
		actions = l.change(e, actions)
	}
	return actions, err
}

func (l liar) Status() tuner.Status {
	if l.status != nil {
		return l.status(l.Tuner.Status())
	}
	return l.Tuner.Status()
}

func settings() tuner.Settings {
	return tuner.Settings{Spec: &outbidv1.SweepSpec{
		Metric: "loss", Mode: "min", Limits: &outbidv1.Limits{Trials: 9},
		Tuner: &outbidv1.Tuner{Kind: &outbidv1.Tuner_Asha{Asha: &outbidv1.Asha{MaxSteps: 9}}},
	}}
}

// each changes every action of one type.
func each[T tuner.Action](change func(T) tuner.Action) func(tuner.Event, []tuner.Action) []tuner.Action {
	return func(_ tuner.Event, actions []tuner.Action) []tuner.Action {
		for i := range actions {
			if a, ok := actions[i].(T); ok {
				actions[i] = change(a)
			}
		}
		return actions
	}
}

func without[T tuner.Action](_ tuner.Event, actions []tuner.Action) []tuner.Action {
	var kept []tuner.Action
	for _, a := range actions {
		if _, ok := a.(T); !ok {
			kept = append(kept, a)
		}
	}
	return kept
}

func TestDriveSeesWhatBreaksTheContract(t *testing.T) {
	t.Parallel()
	create := tuner.Create{Config: tuner.Config{}, UntilStep: 1, Reason: "more"}
	for _, c := range []struct {
		name string
		liar liar
		want string
	}{
		{"honest", liar{}, ""},
		{"too many", liar{change: func(e tuner.Event, a []tuner.Action) []tuner.Action {
			if _, ok := e.(tuner.Ask); ok {
				return append(a, create)
			}
			return a
		}}, "asked for at most 4 trials, started 5"},
		{"unasked", liar{change: func(e tuner.Event, a []tuner.Action) []tuner.Action {
			if _, ok := e.(tuner.Reached); ok {
				return append(a, create)
			}
			return a
		}}, "the event is not an Ask"},
		{"no reason", liar{change: each(func(a tuner.Pause) tuner.Action { a.Reason = ""; return a })}, "no reason"},
		{"no config", liar{change: each(func(a tuner.Create) tuner.Action { a.Config = nil; return a })}, "no configuration"},
		{"unknown", liar{change: each(func(a tuner.Pause) tuner.Action { a.Trial = 99; return a })}, "the trial does not exist"},
		{"backwards", liar{change: each(func(a tuner.Train) tuner.Action { a.UntilStep = 1; return a })}, "the target must be above"},
		{"running", liar{change: func(e tuner.Event, a []tuner.Action) []tuner.Action {
			if _, ok := e.(tuner.Ask); ok {
				return append(a, tuner.Pause{Trial: 0, Reason: "now"})
			}
			return a
		}}, "not at its target"},
		{"ended", liar{change: each(func(a tuner.Pause) tuner.Action {
			return tuner.End{Trial: a.Trial, Reason: "enough"}
		})}, "has ended"},
		{"left behind", liar{change: without[tuner.End]}, "is left paused"},
		{"never done", liar{status: func(s tuner.Status) tuner.Status { s.Exhausted = false; return s }}, "not exhausted"},
		{"idle", liar{status: func(tuner.Status) tuner.Status { return tuner.Status{} }}, "returns no actions"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			made, err := registry.New(settings())
			if err != nil {
				t.Fatal(err)
			}
			c.liar.Tuner = made
			_, err = tunertest.Drive(c.liar, tunertest.Options{})
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, not %q", err, c.want)
			}
		})
	}
}

func TestResumeSeesASnapshotThatForgets(t *testing.T) {
	t.Parallel()
	kind := tunertest.Builtin()
	made, err := kind.New(settings())
	if err != nil {
		t.Fatal(err)
	}
	result, err := tunertest.Drive(made, tunertest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := tunertest.Resume(kind, settings(), result.Steps, 1); err != nil {
		t.Fatal(err)
	}
	kind.Restore = func(s tuner.Settings, _ []byte) (tuner.Tuner, error) { return registry.New(s) }
	if tunertest.Resume(kind, settings(), result.Steps, 1) == nil {
		t.Error("it did not see it")
	}
}
