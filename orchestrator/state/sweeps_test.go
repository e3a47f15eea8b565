package state_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// after returns a time some seconds after at.
func after(seconds int) time.Time { return at().Add(time.Duration(seconds) * time.Second) }

func applyAt(t *testing.T, st *state.State, seconds int, events ...*outbidv1.Event) {
	t.Helper()
	for _, e := range events {
		if err := st.Apply(after(seconds), e); err != nil {
			t.Fatalf("%v: %v", e, err)
		}
	}
}

func cancelled(n int32) *outbidv1.Event {
	e := ended(n, outbidv1.TrialState_TRIAL_STATE_CANCELLED)
	e.GetTrialEnded().Resumable = true
	return e
}

func extended(id string) *outbidv1.Event {
	return &outbidv1.Event{Kind: &outbidv1.Event_SweepExtended{SweepExtended: &outbidv1.SweepExtended{Sweep: id, Spec: spec(1)}}}
}

func ids(sweeps []*state.Sweep) []string {
	all := make([]string, len(sweeps))
	for i, s := range sweeps {
		all[i] = s.ID
	}
	return all
}

// The integral counts the sweeps that compete for devices, from their submission to their end, and again after they
// continue.
func TestAppSecondsCountTheSweepsThatCompete(t *testing.T) {
	t.Parallel()
	st := state.New()
	external := spec(1)
	external.Name, external.Workload = "x", &outbidv1.SweepSpec_External{External: &outbidv1.External{}}
	applyAt(t, st, 0, submittedAs("s-1", ""))
	applyAt(t, st, 10, submittedAs("s-2", ""), submitted(external))
	applyAt(t, st, 20, changed("s-1", outbidv1.SweepState_SWEEP_STATE_DONE), changed("x-1", outbidv1.SweepState_SWEEP_STATE_DONE))
	if got := st.Sweeps["s-2"].AppSecondsBefore; got != 10 {
		t.Errorf("%g app seconds before the second sweep, want 10", got)
	}
	want := map[int]float64{5: 30, 20: 30, 30: 40} // 10 s of one, 10 s of two, then one; before the last change, as then
	for name, st := range map[string]*state.State{"live": st, "restored": restore(t, st)} {
		for seconds, apps := range want {
			if got := st.AppSeconds(after(seconds)); got != apps {
				t.Errorf("%s: %g app seconds after %d s, want %g", name, got, seconds, apps)
			}
		}
		if got := ids(st.Live); !slices.Equal(got, []string{"s-2"}) {
			t.Errorf("%s: %v go on", name, got)
		}
		applyAt(t, st, 30, extended("s-1"))
		if got := st.AppSeconds(after(40)); got != 60 {
			t.Errorf("%s: %g app seconds once the first goes on, want 60", name, got)
		}
		if got := ids(st.Live); !slices.Equal(got, []string{"s-1", "s-2"}) || !st.Sweeps["s-1"].Ended.IsZero() {
			t.Errorf("%s: %v go on", name, got)
		}
	}
}

func TestASweepIsLiveUntilItEnds(t *testing.T) {
	t.Parallel()
	const running, stopped = outbidv1.SweepState_SWEEP_STATE_RUNNING, outbidv1.SweepState_SWEEP_STATE_STOPPED
	st := state.New()
	stop := changed("s-2", outbidv1.SweepState_SWEEP_STATE_STOPPING)
	stop.GetSweepChanged().Actor = "ann"
	for i, step := range []struct {
		event *outbidv1.Event
		live  []string
		actor string
	}{
		{submittedAs("s-1", ""), []string{"s-1"}, ""},
		{submittedAs("s-2", ""), []string{"s-1", "s-2"}, ""},
		{submittedAs("s-3", ""), []string{"s-1", "s-2", "s-3"}, ""},
		{changed("s-2", outbidv1.SweepState_SWEEP_STATE_PAUSED), []string{"s-1", "s-2", "s-3"}, ""},
		{changed("s-2", running), []string{"s-1", "s-2", "s-3"}, ""},
		{stop, []string{"s-1", "s-2", "s-3"}, "ann"},
		{changed("s-2", stopped), []string{"s-1", "s-3"}, "ann"},
		{changed("s-2", running), []string{"s-1", "s-2", "s-3"}, "ann"},
	} {
		apply(t, st, step.event)
		if got := ids(st.Live); !slices.Equal(got, step.live) {
			t.Errorf("step %d: %v are live, want %v", i, got, step.live)
		}
		if s := st.Sweeps["s-2"]; s != nil && s.StopActor != step.actor {
			t.Errorf("step %d: %q stopped it, want %q", i, s.StopActor, step.actor)
		}
	}
}

// A trial that was cancelled by a person's stop returns to its earlier state when the sweep continues. Other trials
// that ended stay ended.
func TestAStoppedSweepContinues(t *testing.T) {
	t.Parallel()
	for name, on := range map[string]*outbidv1.Event{
		"resumed": changed("s-1", outbidv1.SweepState_SWEEP_STATE_RUNNING), "extended": extended("s-1"),
	} {
		st := state.New()
		apply(t, st, submitted(spec(1)), joined(4))
		for n := range int32(6) {
			apply(t, st, created(n))
		}
		apply(t, st, paused(1), granted(2, 1, 0), granted(3, 2, 1), paused(3), granted(4, 3, 2),
			&outbidv1.Event{Kind: &outbidv1.Event_TrialReached{TrialReached: &outbidv1.TrialReached{Sweep: "s-1", Trial: 4, LeaseId: 3, Step: 3}}},
			ended(5, outbidv1.TrialState_TRIAL_STATE_COMPLETED), changed("s-1", outbidv1.SweepState_SWEEP_STATE_STOPPING),
			cancelled(0), cancelled(1), cancelled(2), cancelled(3), cancelled(4),
			leaseEnded(2, 1), leaseEnded(3, 2), leaseEnded(4, 3), changed("s-1", outbidv1.SweepState_SWEEP_STATE_STOPPED), on)
		s := st.Sweeps["s-1"]
		var got []string
		for _, tr := range s.Trials {
			got = append(got, fmt.Sprintf("%s %d", state.TrialWord(tr.State), tr.Resumes))
		}
		// Waiting; paused; running; to be paused; at its target; ended.
		if want := []string{"queued 1", "paused 1", "queued 1", "paused 1", "paused 1", "completed 0"}; !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
		if !slices.Equal(s.Queued, []int32{0, 2}) || len(s.Running) != 0 || s.Reason != "" {
			t.Errorf("%s: %v wait, %v run, %q", name, s.Queued, s.Running, s.Reason)
		}
	}
}

func TestNotesAreBounded(t *testing.T) {
	t.Parallel()
	st := state.New()
	apply(t, st, submitted(spec(1)))
	s := st.Sweeps["s-1"]
	note := func(sweep string, i int) *outbidv1.Event {
		return &outbidv1.Event{Kind: &outbidv1.Event_Note{Note: &outbidv1.Note{Sweep: sweep, Text: fmt.Sprint(i)}}}
	}
	for i := range 53 {
		version := s.Version
		apply(t, st, note("s-1", i), note("another", i))
		if got, want := len(s.Notes), min(i+1, 50); got != want || s.Version != version+1 {
			t.Fatalf("%d notes after %d, want %d; versions %d and %d", got, i+1, want, version, s.Version)
		}
		if got := s.Notes[len(s.Notes)-1].GetText(); got != fmt.Sprint(i) {
			t.Fatalf("the newest note is %s, want %d", got, i)
		}
	}
	if got := s.Notes[0].GetText(); got != "3" {
		t.Errorf("the oldest note kept is %s, want 3", got)
	}
}

func TestSweepsAreFoundByTheirKeys(t *testing.T) {
	t.Parallel()
	st := state.New()
	apply(t, st, submittedAs("s-1", "key"), submittedAs("s-2", ""), created(0))
	for _, st := range []*state.State{st, restore(t, st)} {
		if got := st.ByKey("key"); got != "s-1" || st.ByKey("") != "" || st.ByKey("other") != "" {
			t.Errorf("the key gives %q, none %q", got, st.ByKey(""))
		}
		for n, found := range map[int32]bool{-1: false, 0: true, 1: false} {
			if _, err := st.Sweeps["s-1"].Trial(n); found != (err == nil) || !found && !errors.Is(err, state.ErrNotFound) {
				t.Errorf("trial %d: %v", n, err)
			}
		}
	}
}

func TestSubjectsOfEvents(t *testing.T) {
	t.Parallel()
	st := state.New()
	for name, tc := range map[string]struct {
		event *outbidv1.Event
		trial bool
	}{
		"a trial": {created(0), true}, "a sweep": {deleted("s-1"), false}, "a node": {joined(1), false}, "nothing known": {&outbidv1.Event{}, false},
	} {
		if got := st.TrialOf(tc.event); (got != nil) != tc.trial {
			t.Errorf("%s is about trial %v", name, got)
		}
	}
	if err := state.CheckReadable(created(0)); err != nil {
		t.Error(err)
	}
	if err := state.CheckReadable(&outbidv1.Event{}); !errors.Is(err, state.ErrNewer) {
		t.Errorf("an event of no known kind: %v", err)
	}
}

func TestRoundsAreCounted(t *testing.T) {
	t.Parallel()
	st := state.New()
	apply(t, st, &outbidv1.Event{Kind: &outbidv1.Event_RoundDecided{RoundDecided: &outbidv1.RoundDecided{Round: 7}}})
	if st.NextRound != 8 {
		t.Errorf("the next round is %d, want 8", st.NextRound)
	}
}

// A state that no version knows is rejected.
func TestAnUnknownStateIsBroken(t *testing.T) {
	t.Parallel()
	st := state.New()
	apply(t, st, submitted(spec(1)))
	for _, unknown := range []outbidv1.SweepState{8, 9, 10, 99} {
		snap := proto.CloneOf(st.Snapshot())
		snap.Sweeps[0].State = unknown
		again, err := state.Restore(snap)
		if err != nil {
			continue
		}
		if err := again.Apply(at(), changed("s-1", outbidv1.SweepState_SWEEP_STATE_RUNNING)); !errors.Is(err, state.ErrBroken) {
			t.Errorf("state %d: %v", unknown, err)
		}
	}
}

// The mean weight of a tenant's sweeps follows submissions, extensions, ends and continuations, and is the same when
// restored.
func TestTheMeanWeightOfATenantsSweeps(t *testing.T) {
	t.Parallel()
	st := state.New()
	of := func(name, tenant string, weight float64) *outbidv1.SweepSpec {
		sp := spec(1)
		sp.Name, sp.Tenant, sp.Weight = name, tenant, weight
		return sp
	}
	check := func(when string, one, two float64) {
		t.Helper()
		for name, st := range map[string]*state.State{"live": st, "restored": restore(t, st)} {
			if a, b := st.MeanWeight("one"), st.MeanWeight("two"); a != one || b != two {
				t.Errorf("%s, %s: mean weights %v and %v, want %v and %v", when, name, a, b, one, two)
			}
		}
	}
	check("at first", 1, 1)
	applyAt(t, st, 0, submitted(of("a", "one", 0)), submitted(of("b", "one", 3)), submitted(of("c", "two", 1.1)))
	check("with three", 2, 1.1)
	more := extended("b-1")
	more.GetSweepExtended().Spec = of("b", "one", 4)
	applyAt(t, st, 10, more)
	check("when one weighs more", 2.5, 1.1)
	applyAt(t, st, 20, changed("a-1", outbidv1.SweepState_SWEEP_STATE_DONE), changed("c-1", outbidv1.SweepState_SWEEP_STATE_DONE))
	check("when two have ended", 4, 1)
	more = extended("a-1")
	more.GetSweepExtended().Spec = of("a", "one", 2)
	applyAt(t, st, 30, more)
	check("when one goes on", 3, 1)
}
