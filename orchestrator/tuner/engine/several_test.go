package engine_test

import (
	"math"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/registry"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Bayesian search learns from each objective, in its own direction, and takes a trial that lacks one for failed. Here all
// trials have the same loss, so that only the second objective tells configurations apart.
func TestBayesLearnsFromAllObjectives(t *testing.T) {
	t.Parallel()
	for mode, best := range map[string]float64{"max": 0.3, "min": 0.8} {
		made, err := registry.New(tuner.Settings{Spec: &outbidv1.SweepSpec{
			Metric: "loss", Mode: "min", Objectives: []*outbidv1.Objective{{Metric: "score", Mode: mode}},
			Space: map[string]*outbidv1.Parameter{"x": {Kind: &outbidv1.Parameter_Float{Float: &outbidv1.FloatRange{Low: 0, High: 1}}}},
			Tuner: &outbidv1.Tuner{Kind: &outbidv1.Tuner_Bayes{Bayes: &outbidv1.BayesianSearch{}}, Seed: proto.Uint64(1)},
		}})
		if err != nil {
			t.Fatal(err)
		}
		near := 0
		for n := range 30 {
			actions, err := made.Handle(tuner.Ask{N: 1})
			if err != nil || len(actions) != 1 {
				t.Fatal(actions, err)
			}
			x, _ := actions[0].(tuner.Create).Config["x"].(float64) //nolint:forcetypeassert // a new trial
			if n >= 10 && math.Abs(x-best) < 0.1 {
				near++
			}
			score := (x - best) * (x - best)
			if mode == "max" {
				score = -score
			}
			metrics := map[string]float64{"loss": 1, "score": score}
			if n == 2 {
				delete(metrics, "score")
			}
			end := tuner.Exited{Trial: tuner.Trial(n), Step: 1, Metric: 1, Metrics: metrics, Failed: n == 1}
			if _, err := made.Handle(end); err != nil {
				t.Fatal(err)
			}
		}
		if near < 10 {
			t.Errorf("%s: %d of the last 20 trials are near %v", mode, near, best)
		}
	}
}
