// Package forecast answers how the metric of a sweep's unfinished trials may continue.
package forecast

import (
	"fmt"

	"github.com/outbid-dev/outbid/orchestrator/curve"
	"github.com/outbid-dev/outbid/orchestrator/curve/bands"
	"github.com/outbid-dev/outbid/orchestrator/state"
	"github.com/outbid-dev/outbid/orchestrator/tuner"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Most limits the trials of one call.
const Most = 12

// maxTeachers limits the ended trials whose curves calibrate the forecasts.
const maxTeachers = 16

// A Source reads a sweep.
type Source interface {
	// Trial returns a trial by number.
	Trial(n int32) (*outbidv1.Trial, error)
	// Recent returns the trials that were created last, the newest last.
	Recent() ([]*outbidv1.Trial, error)
	// Values calls f for the trial's values of the sweep's metric that count, in order.
	Values(trial int32, f func(step int64, value float64)) error
}

// Curves forecasts trials of a sweep until the last step of its tuner.
func Curves(sweep *outbidv1.Sweep, trials []int32, from Source) (*outbidv1.ForecastCurvesResponse, error) {
	resp := &outbidv1.ForecastCurvesResponse{}
	until := tuner.MaxSteps(sweep.GetSpec().GetTuner())
	if until == 0 {
		resp.Reason = "The sweep's tuner has no max_steps, so there is no step to forecast."
		return resp, nil
	}
	open, reason, err := unfinished(trials, from)
	if resp.Reason = reason; err != nil || len(open) == 0 {
		return resp, err
	}
	teachers, err := teachers(from)
	if err != nil {
		return nil, err
	}
	maximise := sweep.GetSpec().GetMode() == "max"
	known := bands.Calibrate(teachers, maximise)
	resp.Checked = int32(len(known.Results))
	for _, n := range open {
		points, err := pointsOf(n, from)
		if err != nil {
			return nil, err
		}
		f := &outbidv1.CurveForecast{Trial: n}
		for _, b := range bands.Of(points, until, maximise, known) {
			f.Points = append(f.Points, &outbidv1.ForecastPoint{Step: b.Step, Low: b.Low, Median: b.Median, High: b.High})
		}
		if f.Points == nil {
			resp.Reason = fmt.Sprintf("A forecast needs %d reports of %s before the last one; trial %d has %d.",
				curve.MinPoints, sweep.GetSpec().GetMetric(), n, len(points))
			continue
		}
		resp.Forecasts = append(resp.Forecasts, f)
	}
	return resp, nil
}

// unfinished returns the trials that have not ended, and why others are not forecast.
func unfinished(trials []int32, from Source) (open []int32, reason string, err error) {
	for _, n := range trials {
		t, err := from.Trial(n)
		if err != nil {
			return nil, "", err
		}
		if hasEnded(t) {
			reason = fmt.Sprintf("Trial %d is %s; only trials that have not ended are forecast.", n, state.TrialWord(t.GetState()))
			continue
		}
		open = append(open, n)
	}
	return open, reason, nil
}

func hasEnded(t *outbidv1.Trial) bool {
	return t.GetState() >= outbidv1.TrialState_TRIAL_STATE_COMPLETED
}

// teachers returns the curves of the newest trials that have ended.
func teachers(from Source) ([][]curve.Point, error) {
	recent, err := from.Recent()
	if err != nil {
		return nil, err
	}
	var curves [][]curve.Point
	for i := len(recent) - 1; i >= 0 && len(curves) < maxTeachers; i-- {
		t := recent[i]
		if !hasEnded(t) || t.Best == nil || t.GetStep() < 2*curve.MinPoints {
			continue
		}
		points, err := pointsOf(t.GetNumber(), from)
		if err != nil {
			return nil, err
		}
		curves = append(curves, points)
	}
	return curves, nil
}

// pointsOf returns a trial's values of the metric, thinned.
func pointsOf(trial int32, from Source) ([]curve.Point, error) {
	var c bands.Thinned
	err := from.Values(trial, c.Add)
	return c.Points, err
}
