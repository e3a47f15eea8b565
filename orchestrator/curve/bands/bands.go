// Package bands forecasts the unfinished curves of a sweep for people who watch it. It uses the model of the tuner
// performance_curve (package curve) and calibrates it with the curves of the sweep's trials that have ended. It computes
// only from its arguments and draws no random numbers, so the same curves give the same bands.
package bands

import (
	"math"

	"github.com/outbid-dev/outbid/orchestrator/curve"
)

const (
	// looks is the number of steps of a band.
	looks = 9
	// maxPoints limits the points that a Thinned curve keeps.
	maxPoints = 128
)

// A Band is the distribution of a metric at a step: Low, Median and High are the quantiles 0.1, 0.5 and 0.9.
type Band struct {
	Step              int64
	Low, Median, High float64
}

// Of forecasts a curve from its newest step to the step until, or returns nil if the curve has too few points or has
// already reached that step.
func Of(points []curve.Point, until int64, maximise bool, k *curve.Calibration) []Band {
	if len(points) == 0 || points[len(points)-1].Step >= until {
		return nil
	}
	c, ok := curve.Fit(points, maximise)
	if !ok {
		return nil
	}
	newest := float64(points[len(points)-1].Step)
	var all []Band
	for i := range looks {
		step := int64(math.Round(newest * math.Pow(float64(until)/newest, float64(i)/(looks-1))))
		if len(all) > 0 && step <= all[len(all)-1].Step {
			continue
		}
		f := c.At(step, k)
		all = append(all, Band{Step: step, Low: f.Quantile(0.1), Median: f.Quantile(0.5), High: f.Quantile(0.9)})
	}
	return all
}

// Calibrate returns what the curves of ended trials teach about the errors of forecasts: each is forecast from its first
// quarter and from its first half to its end.
func Calibrate(ended [][]curve.Point, maximise bool) *curve.Calibration {
	k := &curve.Calibration{}
	for _, points := range ended {
		for _, parts := range []int{4, 2} {
			n := len(points) / parts
			if n < curve.MinPoints {
				continue
			}
			if c, ok := curve.Fit(points[:n], maximise); ok {
				last := points[len(points)-1]
				k.Learn(c.At(last.Step, k).Claim(), last.Value, 1)
			}
		}
	}
	return k
}

// Thinned is a curve with a limited number of points. The zero value is empty.
type Thinned struct{ Points []curve.Point }

// Add adds a report, which is ignored unless its step is beyond the last one and its value is finite. Neighbours are
// averaged if there are too many points.
func (t *Thinned) Add(step int64, value float64) {
	if n := len(t.Points); math.IsNaN(value) || math.IsInf(value, 0) || n > 0 && step <= t.Points[n-1].Step {
		return
	}
	if t.Points = append(t.Points, curve.Point{Step: step, Value: value}); len(t.Points) < maxPoints {
		return
	}
	half := t.Points[:0]
	for i := 0; i+1 < len(t.Points); i += 2 {
		a, b := t.Points[i], t.Points[i+1]
		half = append(half, curve.Point{Step: b.Step, Value: a.Value/2 + b.Value/2})
	}
	t.Points = half
}
