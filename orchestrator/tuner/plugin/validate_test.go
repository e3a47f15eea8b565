package plugin

import (
	"testing"

	"github.com/outbid-dev/outbid/orchestrator/tuner"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

func good() tuner.Config { return tuner.Config{"lr": 0.1, "width": int64(4)} }

// bounded returns a validator with a maximum of 9 steps. Trial 0 trains towards step 3, trial 1 waits there, trial 2
// has completed.
func bounded(t *testing.T) *validator {
	t.Helper()
	s := sweep()
	s.Spec.Tuner.Kind = &outbidv1.Tuner_Plugin{Plugin: &outbidv1.PluginTuner{MaxSteps: 9}}
	g, err := newValidator(s)
	if err != nil {
		t.Fatal(err)
	}
	create := tuner.Create{Config: good(), UntilStep: 3}
	events := []struct {
		event   tuner.Event
		actions []tuner.Action
	}{
		{tuner.Ask{N: 3}, []tuner.Action{create, create, create}},
		{tuner.Reached{Trial: 1, Step: 3}, nil},
		{tuner.Reached{Trial: 2, Step: 3}, []tuner.Action{tuner.End{Trial: 2, Completed: true}}},
	}
	for _, e := range events {
		if err := g.recordEvent(e.event); err != nil {
			t.Fatal(err)
		}
		if err := g.check(e.event, e.actions); err != nil {
			t.Fatal(err)
		}
	}
	return g
}

func TestTheGuardRefusesWhatBreaksTheContract(t *testing.T) {
	t.Parallel()
	create := tuner.Create{Config: good(), UntilStep: 3}
	for _, c := range []struct {
		name   string
		event  tuner.Event
		action tuner.Action
		want   string
	}{
		{"unasked", tuner.Reached{Trial: 1}, create, "was not asked"},
		{"no target", tuner.Ask{N: 1}, tuner.Create{Config: good()}, "not beyond 0"},
		{"negative target", tuner.Ask{N: 1}, tuner.Create{Config: good(), UntilStep: -1}, "not beyond 0"},
		{"too far", tuner.Ask{N: 1}, tuner.Create{Config: good(), UntilStep: 10}, "beyond max_steps 9"},
		{"bracket", tuner.Ask{N: 1}, tuner.Create{Config: good(), UntilStep: 3, Bracket: -1}, "bracket -1"},
		{"config", tuner.Ask{N: 1}, tuner.Create{Config: tuner.Config{"lr": 2.0}, UntilStep: 3}, "outside the search space"},
		{"train unknown", tuner.Ask{N: 1}, tuner.Train{Trial: 3, UntilStep: 9}, "trial 3, which does not exist"},
		{"train negative", tuner.Ask{N: 1}, tuner.Train{Trial: -1, UntilStep: 9}, "trial -1, which does not exist"},
		{"train running", tuner.Ask{N: 1}, tuner.Train{Trial: 0, UntilStep: 9}, "has not reached its target 3"},
		{"train completed", tuner.Ask{N: 1}, tuner.Train{Trial: 2, UntilStep: 9}, "trial 2, which has ended"},
		{"train no further", tuner.Ask{N: 1}, tuner.Train{Trial: 1, UntilStep: 3}, "not beyond 3"},
		{"train too far", tuner.Ask{N: 1}, tuner.Train{Trial: 1, UntilStep: 10}, "beyond max_steps 9"},
		{"pause running", tuner.Ask{N: 1}, tuner.Pause{Trial: 0}, "has not reached"},
		{"end ended", tuner.Ask{N: 1}, tuner.End{Trial: 2}, "which has ended"},
		{"clone of nothing", tuner.Ask{N: 1}, tuner.Clone{Trial: 1, Source: 7, Config: good(), UntilStep: 9}, "from trial 7, which does not exist"},
		{"clone back", tuner.Ask{N: 1}, tuner.Clone{Trial: 1, Source: 0, Config: good(), UntilStep: 2}, "not beyond 3"},
		{"clone config", tuner.Ask{N: 1}, tuner.Clone{Trial: 1, Source: 0, UntilStep: 9}, "outside the search space"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			contains(t, bounded(t).check(c.event, []tuner.Action{c.action}), c.want)
		})
	}
	contains(t, bounded(t).check(tuner.Ask{N: 1}, []tuner.Action{create, create}), "asked for at most 1 trials but started 2")
	contains(t, bounded(t).recordEvent(tuner.Reached{Trial: 9}), "trial 9 does not exist")
}

func TestTheGuardLetsAnExtensionTakeUpCompletedTrials(t *testing.T) {
	t.Parallel()
	g := bounded(t)
	if err := g.recordEvent(tuner.Extended{Settings: sweep()}); err != nil {
		t.Fatal(err)
	}
	if err := g.check(tuner.Ask{N: 1}, []tuner.Action{tuner.Train{Trial: 2, UntilStep: 12}}); err != nil {
		t.Error(err)
	}
}

// Events that happened before the plugin's End of a trial arrived are dropped.
func TestNothingIsToldOfATrialThatThePluginEnded(t *testing.T) {
	t.Parallel()
	g := &validator{validatorState: validatorState{Targets: make([]int64, 4), Places: []place{training, waiting, completed, ended}}}
	for trial, want := range []bool{false, false, true, true, false} {
		n := tuner.Trial(trial)
		for _, e := range []tuner.Event{tuner.Reported{Trial: n}, tuner.Reached{Trial: n}, tuner.Exited{Trial: n}} {
			if got := g.isStale(e); got != want {
				t.Errorf("%#v: %t", e, got)
			}
		}
	}
	if g.isStale(tuner.Ask{N: 1}) || g.isStale(tuner.Extended{}) {
		t.Error("an ask is not told")
	}
}
