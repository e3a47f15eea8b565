package api

import (
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

func TestForecastCurves(t *testing.T) {
	t.Parallel()
	h := serve(t, nil)
	h.control.add("digits-1", "", 2)
	h.control.change("digits-1", func(s *fakeSweep) {
		s.view.Spec.Metric = "accuracy"
		s.view.Spec.Tuner = &outbidv1.Tuner{Kind: &outbidv1.Tuner_Random{Random: &outbidv1.RandomSearch{MaxSteps: 20}}}
		for step := range int64(8) {
			s.reports = append(s.reports, &outbidv1.TrialReport{Trial: 1, Report: &outbidv1.Report{
				Step: step + 1, Metrics: map[string]float64{"accuracy": 1 - 1/float64(step+1)},
			}})
		}
	})
	client := h.dial(t, "")
	ask := func(trials ...int32) (*outbidv1.ForecastCurvesResponse, error) {
		return client.ForecastCurves(t.Context(), &outbidv1.ForecastCurvesRequest{Sweep: "digits-1", Trials: trials})
	}
	got, err := ask(1)
	if err != nil || len(got.GetForecasts()) != 1 || got.GetForecasts()[0].GetTrial() != 1 || len(got.GetForecasts()[0].GetPoints()) < 3 {
		t.Errorf("got %v, %v", got, err)
	}
	if got, err := ask(0); err != nil || got.GetReason() == "" {
		t.Errorf("a trial without reports: %v, %v", got, err)
	}
	for name, trials := range map[string][]int32{"none": nil, "too many": make([]int32, 13)} {
		if _, err := ask(trials...); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := ask(7); status.Code(err) != codes.NotFound {
		t.Errorf("an unknown trial: %v", err)
	}
}

// While another forecast is computed, a call waits, and says so if that takes too long.
func TestForecastsTakeTurns(t *testing.T) {
	t.Parallel()
	h := serve(t, nil)
	h.control.add("digits-1", "", 1)
	s := &forecastService{lookup: lookup{h.control}, computing: make(chan struct{}, 1)}
	s.computing <- struct{}{}
	got, err := s.ForecastCurves(t.Context(), &outbidv1.ForecastCurvesRequest{Sweep: "digits-1", Trials: []int32{0}})
	if err != nil || got.GetReason() != "The forecast took longer than 2s; choose fewer trials or try again later." {
		t.Errorf("got %v, %v", got, err)
	}
}
