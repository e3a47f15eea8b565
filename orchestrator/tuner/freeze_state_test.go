package tuner

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outbid-dev/outbid/orchestrator/curve/population"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// freezeOf returns the engine and the freeze_thaw rules behind a tuner.
func freezeOf(t *testing.T, made Tuner) (*engine, *freeze) {
	t.Helper()
	e, ok := made.(*engine)
	if !ok {
		t.Fatalf("the tuner is a %T", made)
	}
	z, ok := e.rules.(*freeze)
	if !ok {
		t.Fatalf("its rules are a %T", e.rules)
	}
	return e, z
}

// A snapshot of a version with other correlation models is restored with beliefs that its curves give for the present
// ones.
func TestFreezeThawReadsBeliefsInOtherCourses(t *testing.T) {
	t.Parallel()
	spec := &outbidv1.SweepSpec{
		Metric: "loss", Mode: "min", Tuner: &outbidv1.Tuner{Seed: new(uint64(1)), Kind: &outbidv1.Tuner_FreezeThaw{FreezeThaw: &outbidv1.FreezeThaw{MaxSteps: 8}}},
		Space: map[string]*outbidv1.Parameter{"lr": {Kind: &outbidv1.Parameter_Float{Float: &outbidv1.FloatRange{Low: 0, High: 1}}}},
	}
	set := Settings{Spec: spec}
	made, err := New(set)
	if err != nil {
		t.Fatal(err)
	}
	e, z := freezeOf(t, made)
	for n := range 12 {
		if _, err := made.Handle(Ask{N: 1}); err != nil {
			t.Fatal(err)
		}
		for trial, r := range e.trials {
			if w := z.live[Trial(trial)]; r.phase == running {
				if _, err := made.Handle(Reached{Trial: w.Trial, Step: z.next(w.Step), Metric: 1 / float64(n+1)}); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	want := population.Believe(z.curves(), z.gittins)
	z.Beliefs = population.Beliefs{Weights: []float64{0.5, 0.5}}
	snapshot, err := made.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	back, err := Restore(set, snapshot)
	if err != nil {
		t.Fatal(err)
	}
	_, again := freezeOf(t, back)
	if diff := cmp.Diff(want, again.Beliefs); diff != "" {
		t.Errorf("beliefs (-want +got):\n%s", diff)
	}
}
