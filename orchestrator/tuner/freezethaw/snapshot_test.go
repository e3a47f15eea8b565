package freezethaw

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outbid-dev/outbid/orchestrator/curve/population"
	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/engine"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// watchedKind returns the kind and a function that returns the rules of its newest tuner.
func watchedKind() (*engine.Kind, func() *freeze) {
	k, newest := Kind(), (*freeze)(nil)
	k.Fresh = func(c *engine.Core) (engine.Rules, error) {
		z, err := newFreeze(c)
		newest = z
		return z, err
	}
	return k, func() *freeze { return newest }
}

// A snapshot of a version with other correlation models is restored with beliefs that its curves give for the present
// ones.
func TestFreezeThawReadsBeliefsInOtherCourses(t *testing.T) {
	t.Parallel()
	spec := &outbidv1.SweepSpec{
		Metric: "loss", Mode: "min", Tuner: &outbidv1.Tuner{Seed: new(uint64(1)), Kind: &outbidv1.Tuner_FreezeThaw{FreezeThaw: &outbidv1.FreezeThaw{MaxSteps: 8}}},
		Space: map[string]*outbidv1.Parameter{"lr": {Kind: &outbidv1.Parameter_Float{Float: &outbidv1.FloatRange{Low: 0, High: 1}}}},
	}
	set := tuner.Settings{Spec: spec}
	kind, newest := watchedKind()
	made, err := engine.New(kind, set)
	if err != nil {
		t.Fatal(err)
	}
	z := newest()
	for n := range 12 {
		if _, err := made.Handle(tuner.Ask{N: 1}); err != nil {
			t.Fatal(err)
		}
		for trial, r := range z.Trials {
			if w := z.live[tuner.Trial(trial)]; r.Phase == engine.Running {
				if _, err := made.Handle(tuner.Reached{Trial: w.Trial, Step: z.next(w.Step), Metric: 1 / float64(n+1)}); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	want := population.Believe(z.curves(z.live), z.gittins)
	z.Beliefs = population.Beliefs{Weights: []float64{0.5, 0.5}}
	snapshot, err := made.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	if _, err = engine.Restore(kind, set, snapshot); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, newest().Beliefs); diff != "" {
		t.Errorf("beliefs (-want +got):\n%s", diff)
	}
}
