package patient_test

import (
	"math"
	"testing"

	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/registry"
	"github.com/outbid-dev/outbid/orchestrator/tuner/tunertest"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

func patient(p *outbidv1.Patient) *outbidv1.Tuner {
	return &outbidv1.Tuner{Kind: &outbidv1.Tuner_Patient{Patient: p}}
}

func TestPatientConforms(t *testing.T) {
	t.Parallel()
	tunertest.Run(t, "patient", func() tuner.Settings {
		return tunertest.Spec(patient(&outbidv1.Patient{MaxSteps: 30, Patience: 3, MinDelta: 0.01, Sampler: "sobol"}), tunertest.Trials(30), tunertest.Minimise)
	})
}

// A trial ends at the first report that is patience steps past its last improvement by more than min_delta.
func TestPatientStopsATrialThatStoppedImproving(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		losses []float64
		end    int
	}{
		"improves":     {[]float64{9, 8, 7, 6, 5, 4, 3, 2}, 0},
		"is flat":      {[]float64{9, 8, 8, 8, 8, 8, 8, 8}, 5},
		"gets worse":   {[]float64{9, 10, 11, 12, 13, 14}, 4},
		"creeps":       {[]float64{9, 8.9, 8.8, 8.7, 8.6}, 4},
		"recovers":     {[]float64{9, 9, 9, 8, 8, 8, 7, 7}, 0},
		"never better": {[]float64{9, math.NaN(), math.NaN(), math.NaN(), math.NaN()}, 4},
		"begins badly": {[]float64{math.NaN(), math.NaN(), 9, 9, 9, 9}, 6},
	} {
		made, err := registry.New(tunertest.Spec(patient(&outbidv1.Patient{MaxSteps: 20, Patience: 3, MinDelta: 0.5}), tunertest.Trials(1), tunertest.Minimise))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := made.Handle(tuner.Ask{N: 1}); err != nil {
			t.Fatal(err)
		}
		end := 0
		for i, loss := range c.losses {
			metrics := map[string]float64{tunertest.Spec(nil).Spec.GetMetric(): loss}
			actions, err := made.Handle(tuner.Reported{Step: int64(i + 1), Metric: loss, Metrics: metrics})
			if err != nil {
				t.Fatal(err)
			}
			if len(actions) > 0 && end == 0 {
				end = i + 1
			}
		}
		if end != c.end {
			t.Errorf("%s: it ends after report %d, want %d", name, end, c.end)
		}
	}
}
