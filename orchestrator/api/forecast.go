package api

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/explain/forecast"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

const (
	// forecastTimeout limits waiting for other calls and the time of one call.
	forecastTimeout = 2 * time.Second
	// lookBack is the number of a sweep's newest trials among which those that calibrate forecasts are looked for.
	lookBack = 512
)

// forecastService forecasts learning curves.
type forecastService struct {
	lookup
	// computing is full while a forecast is computed. All callers share it, so one is computed at a time.
	computing chan struct{}
}

// ForecastCurves implements the service.
func (s *forecastService) ForecastCurves(ctx context.Context, req *outbidv1.ForecastCurvesRequest) (
	*outbidv1.ForecastCurvesResponse, error,
) {
	sweep, err := s.sweep(req.GetSweep())
	if err != nil {
		return nil, err
	}
	if n := len(req.GetTrials()); n == 0 || n > forecast.Most {
		return nil, fieldError("trials", "must name 1 to %d trials, got %d", forecast.Most, n)
	}
	ctx, cancel := context.WithTimeout(ctx, forecastTimeout)
	defer cancel()
	resp, err := s.inTurn(ctx, sweep, req.GetTrials())
	if errors.Is(err, context.DeadlineExceeded) {
		return &outbidv1.ForecastCurvesResponse{
			Reason: fmt.Sprintf("The forecast took longer than %s; choose fewer trials or try again later.", forecastTimeout),
		}, nil
	}
	return resp, err
}

// inTurn waits until no other forecast is computed, and computes one.
func (s *forecastService) inTurn(ctx context.Context, sweep *outbidv1.Sweep, trials []int32) (*outbidv1.ForecastCurvesResponse, error) {
	select {
	case s.computing <- struct{}{}:
		defer func() { <-s.computing }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	superseded, err := s.control.Superseded(sweep.GetId())
	if err != nil {
		return nil, err
	}
	return forecast.Curves(sweep, trials, &forecastSource{ctx: ctx, lookup: s.lookup, sweep: sweep, superseded: superseded})
}

// forecastSource reads a sweep for one forecast.
type forecastSource struct {
	lookup
	ctx        context.Context //nolint:containedctx // the source lives as long as one call
	sweep      *outbidv1.Sweep
	superseded func(trial int32, r *outbidv1.Report) bool
}

// Trial implements forecast.Source.
func (s *forecastSource) Trial(n int32) (*outbidv1.Trial, error) { return s.trial(s.sweep.GetId(), n) }

// Recent implements forecast.Source.
func (s *forecastSource) Recent() ([]*outbidv1.Trial, error) {
	return s.control.Trials(s.sweep.GetId(), max(0, s.sweep.GetCounts().GetTotal()-lookBack), lookBack)
}

// Values implements forecast.Source.
func (s *forecastSource) Values(trial int32, f func(step int64, value float64)) error {
	metric := s.sweep.GetSpec().GetMetric()
	return s.control.Reports(s.ctx, s.sweep.GetId(), &trial, func(n int32, r *outbidv1.Report) error {
		if v, ok := r.GetMetrics()[metric]; ok && !s.superseded(n, r) {
			f(r.GetStep(), v)
		}
		return s.ctx.Err()
	})
}
