package forecast_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/outbid-dev/outbid/orchestrator/explain/forecast"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

const (
	running   = outbidv1.TrialState_TRIAL_STATE_RUNNING
	completed = outbidv1.TrialState_TRIAL_STATE_COMPLETED
)

// source has trials that have done some of 40 steps.
type source struct {
	trials []*outbidv1.Trial
	fail   error
}

func (s *source) add(state outbidv1.TrialState, step int64) {
	s.trials = append(s.trials, &outbidv1.Trial{Number: int32(len(s.trials)), State: state, Step: step, Best: new(0.5)})
}

func (s *source) Trial(n int32) (*outbidv1.Trial, error) { return s.trials[n], nil }

func (s *source) Recent() ([]*outbidv1.Trial, error) { return s.trials, nil }

func (s *source) Values(trial int32, f func(step int64, value float64)) error {
	for step := range s.trials[trial].GetStep() {
		f(step+1, float64(trial)+1/float64(step+1))
	}
	return s.fail
}

func sweep(maxSteps int64) *outbidv1.Sweep {
	return &outbidv1.Sweep{Id: "s-1", Spec: &outbidv1.SweepSpec{
		Metric: "loss", Mode: "min", Tuner: &outbidv1.Tuner{Kind: &outbidv1.Tuner_Random{Random: &outbidv1.RandomSearch{MaxSteps: maxSteps}}},
	}}
}

func TestUnfinishedTrialsAreForecast(t *testing.T) {
	t.Parallel()
	s := &source{}
	s.add(running, 10)
	s.add(completed, 40)
	s.add(running, 20)
	got, err := forecast.Curves(sweep(40), []int32{2, 0}, s)
	if err != nil || got.GetReason() != "" || got.GetChecked() != 2 || len(got.GetForecasts()) != 2 {
		t.Fatalf("%v, %v", got, err)
	}
	first := got.GetForecasts()[0]
	last := first.GetPoints()[len(first.GetPoints())-1]
	if first.GetTrial() != 2 || first.GetPoints()[0].GetStep() != 20 || last.GetStep() != 40 || math.Abs(last.GetMedian()-2) > 0.2 {
		t.Errorf("the forecast is %v", first)
	}
}

func TestWhyTrialsAreNotForecast(t *testing.T) {
	t.Parallel()
	s := &source{}
	s.add(running, 3)
	s.add(completed, 40)
	for name, c := range map[string]struct {
		steps  int64
		trials []int32
		want   string
	}{
		"no end":     {0, []int32{0}, "no max_steps"},
		"ended":      {40, []int32{1}, "Trial 1 is completed"},
		"few points": {40, []int32{0, 1}, "4 reports of loss before the last one; trial 0 has 3"},
	} {
		got, err := forecast.Curves(sweep(c.steps), c.trials, s)
		if err != nil || len(got.GetForecasts()) > 0 || !strings.Contains(got.GetReason(), c.want) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

func TestAnErrorOfTheSource(t *testing.T) {
	t.Parallel()
	s := &source{fail: errors.New("no disk")}
	s.add(running, 10)
	if _, err := forecast.Curves(sweep(40), []int32{0}, s); !errors.Is(err, s.fail) {
		t.Errorf("got %v", err)
	}
}
