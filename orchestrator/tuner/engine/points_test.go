package engine_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/engine"
	"github.com/outbid-dev/outbid/orchestrator/tuner/registry"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Points are used first, open parameters are the same for the same seed, and the draws after them are the same as
// without points, also for a tuner that was restored in between.
func TestPointsComeFirst(t *testing.T) {
	t.Parallel()
	plain := tuner.Settings{Spec: &outbidv1.SweepSpec{
		Metric: "loss", Mode: "min",
		Space: map[string]*outbidv1.Parameter{
			"lr": {Kind: &outbidv1.Parameter_Float{Float: &outbidv1.FloatRange{Low: 0, High: 1}}},
			"n":  {Kind: &outbidv1.Parameter_Int{Int: &outbidv1.IntRange{Low: 1, High: 100}}},
		},
		Constraints: []string{"lr * n < 50"},
		Tuner: &outbidv1.Tuner{
			Kind: &outbidv1.Tuner_Random{Random: &outbidv1.RandomSearch{MaxSteps: 1}}, Seed: proto.Uint64(7),
		},
	}}
	pointed := tuner.Settings{Spec: proto.CloneOf(plain.Spec)}
	for _, given := range []map[string]any{{"lr": 0.25, "n": 3}, {"lr": 1}} {
		point, err := structpb.NewStruct(given)
		if err != nil {
			t.Fatal(err)
		}
		pointed.Spec.Tuner.Points = append(pointed.Spec.Tuner.Points, point)
	}
	drawn := configsOf(t, plain, 3, 0)
	for _, restoredAfter := range []int{0, 1, 2} {
		got := configsOf(t, pointed, 5, restoredAfter)
		if diff := cmp.Diff(tuner.Config{"lr": 0.25, "n": int64(3)}, got[0]); diff != "" {
			t.Errorf("the first point (-want +got):\n%s", diff)
		}
		if n, _ := got[1]["n"].(int64); got[1]["lr"] != 1.0 || n < 1 || n >= 50 {
			t.Errorf("the second point is %v", got[1])
		}
		if diff := cmp.Diff(drawn, got[2:]); diff != "" {
			t.Errorf("the draws after the points (-without +with):\n%s", diff)
		}
	}
	whole, err := engine.Points(pointed.Spec)
	if err != nil || len(whole) != 2 || whole[1].GetFields()["n"].GetNumberValue() != asFloat(configsOf(t, pointed, 2, 0)[1]["n"]) {
		t.Errorf("the complete points are %v, %v", whole, err)
	}
}

func asFloat(v any) float64 {
	n, _ := v.(int64)
	return float64(n)
}

// configsOf returns the configurations of a tuner's first n trials. The tuner is restored from its snapshot after some
// of them.
func configsOf(t *testing.T, s tuner.Settings, n, restoredAfter int) []tuner.Config {
	t.Helper()
	made, err := registry.New(s)
	if err != nil {
		t.Fatal(err)
	}
	var all []tuner.Config
	for len(all) < n {
		if restoredAfter > 0 && len(all) == restoredAfter {
			snapshot, err := made.Snapshot()
			if err != nil {
				t.Fatal(err)
			}
			if made, err = registry.Restore(s, snapshot); err != nil {
				t.Fatal(err)
			}
		}
		actions, err := made.Handle(tuner.Ask{N: 1})
		if err != nil {
			t.Fatal(err)
		}
		for _, action := range actions {
			create, ok := action.(tuner.Create)
			if !ok {
				t.Fatalf("asked for a trial, the tuner wants %T", action)
			}
			all = append(all, create.Config)
		}
	}
	return all
}
