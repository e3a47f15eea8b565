package bands_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outbid-dev/outbid/orchestrator/curve"
	"github.com/outbid-dev/outbid/orchestrator/curve/bands"
)

// falling returns the first n points of a noisy curve that falls to a level.
func falling(seed uint64, n int) []curve.Point {
	rng := rand.New(rand.NewPCG(seed, 1))
	level, rate := rng.Float64(), 0.5+rng.Float64()/2
	var points []curve.Point
	for step := 1; step <= 100; step++ {
		points = append(points, curve.Point{Step: int64(step), Value: level + math.Pow(float64(step), -rate) + 0.01*rng.NormFloat64()})
	}
	return points[:n]
}

func ended(n uint64) [][]curve.Point {
	var all [][]curve.Point
	for seed := range n {
		all = append(all, falling(seed, 100))
	}
	return all
}

// The bands contain about four fifths of the ends of curves, widen with the steps, and are the same each time.
func TestBandsContainWhatCurvesDo(t *testing.T) {
	t.Parallel()
	k := bands.Calibrate(ended(40), false)
	inside := 0
	for seed := range uint64(100) {
		whole := falling(1000+seed, 100)
		band := bands.Of(whole[:25], 100, false, k)
		if band[0].Step != 25 || band[len(band)-1].Step != 100 {
			t.Fatalf("from step %d to %d", band[0].Step, band[len(band)-1].Step)
		}
		last := band[len(band)-1]
		if last.Low <= whole[99].Value && whole[99].Value <= last.High {
			inside++
		}
		if !(last.Low <= last.Median && last.Median <= last.High) {
			t.Errorf("the quantiles are %v", last)
		}
		if diff := cmp.Diff(band, bands.Of(whole[:25], 100, false, k)); diff != "" {
			t.Errorf("another time: %s", diff)
		}
	}
	if inside < 70 || inside > 92 {
		t.Errorf("%d of 100 curves end in their band, want about 80", inside)
	}
}

// A maximised metric has the bands of its negative.
func TestBandsOfAMaximisedMetric(t *testing.T) {
	t.Parallel()
	points, mirrored := falling(7, 30), falling(7, 30)
	for i := range mirrored {
		mirrored[i].Value = -mirrored[i].Value
	}
	low, high := bands.Of(points, 100, false, &curve.Calibration{}), bands.Of(mirrored, 100, true, &curve.Calibration{})
	for i := range low {
		if a, b := low[i], high[i]; math.Abs(a.Low+b.High) > 1e-9 || math.Abs(a.Median+b.Median) > 1e-9 || math.Abs(a.High+b.Low) > 1e-9 {
			t.Errorf("%v and %v", a, b)
		}
	}
}

func TestCurvesWithoutABand(t *testing.T) {
	t.Parallel()
	k := &curve.Calibration{}
	for name, points := range map[string][]curve.Point{"none": nil, "few": falling(1, curve.MinPoints-1), "at the end": falling(1, 100)} {
		if got := bands.Of(points, 100, false, k); got != nil {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// Long curves are thinned, and values that are repeated or not finite are left out.
func TestThinnedCurves(t *testing.T) {
	t.Parallel()
	var c bands.Thinned
	for step := range int64(10_000) {
		c.Add(step+1, float64(step+1))
		c.Add(step+1, 0)
		c.Add(step+2, math.NaN())
	}
	last := c.Points[len(c.Points)-1]
	if len(c.Points) > 128 || last.Step < 9_900 || math.Abs(last.Value-float64(last.Step)) > 200 {
		t.Errorf("%d points, the last %v", len(c.Points), last)
	}
}
