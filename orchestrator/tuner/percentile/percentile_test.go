package percentile_test

import (
	"math"
	"testing"

	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/registry"
	"github.com/outbid-dev/outbid/orchestrator/tuner/tunertest"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

func percentile(p *outbidv1.Percentile) *outbidv1.Tuner {
	return &outbidv1.Tuner{Kind: &outbidv1.Tuner_Percentile{Percentile: p}}
}

func TestPercentileConforms(t *testing.T) {
	t.Parallel()
	tunertest.Run(t, "percentile", func() tuner.Settings {
		return tunertest.Spec(percentile(&outbidv1.Percentile{MaxSteps: 30, Percentile: 25, GraceSteps: 3, Sampler: "sobol"}),
			tunertest.Trials(30), tunertest.Minimise)
	})
}

// Four trials report losses at steps 2 and 4 before a fifth does. With percentile 40, it continues at a check if it is
// among the best two of the five.
func TestATrialOutsideOfThePercentileEnds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		losses []float64
		end    int64
	}{
		"is best":                     {[]float64{0, 0, 0, 0}, 0},
		"ties with the second":        {[]float64{9, 2, 9, 0.5}, 0},
		"was better before":           {[]float64{0, 9, 9, 9}, 0},
		"is third at the first check": {[]float64{3, 3, 3, 3}, 2},
		"falls behind":                {[]float64{1.5, 1.5, 1.5, 1.5}, 4},
		"diverges after a good step":  {[]float64{0, math.NaN(), math.NaN(), math.NaN()}, 0},
		"was never a number":          {[]float64{math.NaN(), math.NaN(), math.NaN(), math.NaN()}, 2},
	} {
		made, err := registry.New(tunertest.Spec(percentile(&outbidv1.Percentile{MaxSteps: 20, Percentile: 40, GraceSteps: 2}),
			tunertest.Trials(5), tunertest.Minimise))
		if err != nil {
			t.Fatal(err)
		}
		handle := func(e tuner.Event) []tuner.Action {
			actions, err := made.Handle(e)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			return actions
		}
		handle(tuner.Ask{N: 5})
		for trial := range tuner.Trial(4) {
			loss := float64(trial + 1)
			handle(tuner.Reported{Trial: trial, Step: 2, Metric: loss, Metrics: map[string]float64{"accuracy": loss}})
			handle(tuner.Reported{Trial: trial, Step: 4, Metric: loss / 4, Metrics: map[string]float64{"accuracy": loss / 4}})
		}
		ended := int64(0)
		for i, loss := range c.losses {
			step := int64(i + 1)
			for _, a := range handle(tuner.Reported{Trial: 4, Step: step, Metric: loss, Metrics: map[string]float64{"accuracy": loss}}) {
				if end, ok := a.(tuner.End); ok && end.Trial == 4 && ended == 0 {
					ended = step
				}
			}
		}
		if ended != c.end {
			t.Errorf("a trial that %s ended at step %d, want %d", name, ended, c.end)
		}
	}
}
