package curve_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/outbid-dev/outbid/orchestrator/curve"
)

// along returns a curve measured at regular steps.
func along(n int, every int64, at func(step float64) float64) []curve.Point {
	var points []curve.Point
	for i := range int64(n) {
		step := (i + 1) * every
		points = append(points, curve.Point{Step: step, Value: at(float64(step))})
	}
	return points
}

// The error of the forecast of a curve that is close to one of the shapes is within a tenth of the remaining change.
func TestCurvesOfTheFamiliesAreForecast(t *testing.T) {
	t.Parallel()
	for name, at := range map[string]func(float64) float64{
		"power law":   func(s float64) float64 { return 0.2 + 3*math.Pow(s+1, -0.5) },
		"exponential": func(s float64) float64 { return 0.5 + 2*math.Exp(-s/20) },
		"janoschek":   func(s float64) float64 { return 1 - 0.8*(1-math.Exp(-math.Pow(s/15, 0.7))) },
		"hill":        func(s float64) float64 { return 4 / (1 + math.Pow(s/10, 1.5)) },
		"logarithm":   func(s float64) float64 { return 5 - math.Log(s+2) },
		"constant":    func(float64) float64 { return 0.7 },
	} {
		noise := rand.New(rand.NewPCG(1, 2))
		noisy := func(s float64) float64 { return at(s) + 0.002*noise.NormFloat64() }
		c, ok := curve.Fit(along(25, 1, noisy), false)
		if !ok {
			t.Fatalf("%s: cannot be fitted", name)
		}
		var known curve.Calibration
		f := c.At(100, &known)
		truth, left := at(100), math.Abs(at(25)-at(100))
		// The last-value model keeps its share.
		if off := math.Abs(f.Median() - truth); off > 0.02+0.5*left {
			t.Errorf("%s: forecast %.4f at step 100, and it is %.4f; at step 25 it was %.4f", name, f.Median(), truth, at(25))
		}
		if low, high := f.Interval(0.9); truth < low || truth > high {
			t.Errorf("%s: %.4f is outside the interval from %.4f to %.4f", name, truth, low, high)
		}
	}
}

func TestTooFewPoints(t *testing.T) {
	t.Parallel()
	nan := math.NaN()
	for _, points := range [][]curve.Point{
		nil,
		{{1, 3}, {2, 2}, {3, 1}},
		{{1, 3}, {2, 2}, {3, 1}, {4, nan}, {5, math.Inf(1)}},
		{{1, 3}, {2, 2}, {3, 1}, {3, 1}, {2, 1}, {0, 5}, {-1, 5}},
	} {
		if _, ok := curve.Fit(points, false); ok {
			t.Errorf("%v was fitted", points)
		}
	}
}

func drawCurve(t *rapid.T) []curve.Point {
	n := rapid.IntRange(curve.MinPoints, 200).Draw(t, "n")
	rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
	v, points := rng.NormFloat64(), []curve.Point{}
	for i := range n {
		v += 0.1 * rng.NormFloat64()
		points = append(points, curve.Point{Step: int64(i+1) * 3, Value: v})
	}
	return points
}

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-6*(1+math.Abs(a)+math.Abs(b)) }

// For any curve and calibration, a forecast is a distribution: quantiles increase, Beats is their inverse, and negating
// the metric negates the forecast.
func TestForecastsAreDistributions(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		points := drawCurve(t)
		turned := make([]curve.Point, len(points))
		for i, p := range points {
			turned[i] = curve.Point{Step: p.Step, Value: -p.Value}
		}
		var known curve.Calibration
		for range rapid.IntRange(0, 300).Draw(t, "results") {
			known.Add(curve.Result{
				Doublings: rapid.Float64Range(0, 5).Draw(t, "doublings"),
				Score:     rapid.Float64Range(-20, 20).Draw(t, "score"),
				Inside:    rapid.Bool().Draw(t, "inside"),
			})
		}
		a, okA := curve.Fit(points, false)
		b, okB := curve.Fit(turned, true)
		if !okA || !okB {
			t.Fatal("not fitted")
		}
		step := points[len(points)-1].Step * rapid.Int64Range(1, 100).Draw(t, "times")
		f, g := a.At(step, &known), b.At(step, &known)
		before := math.Inf(-1)
		for _, p := range []float64{0.001, 0.01, 0.05, 0.1, 0.3, 0.5, 0.7, 0.9, 0.95, 0.99, 0.999} {
			q := f.Quantile(p)
			if math.IsNaN(q) || q < before {
				t.Fatalf("the quantile at %v is %v after %v", p, q, before)
			}
			before = q
			if !near(q, -g.Quantile(1-p)) {
				t.Fatalf("turned around, the quantile at %v is %v, and not %v", p, -g.Quantile(1-p), q)
			}
			if got := f.Beats(q); got < 0 || got > 1 || math.IsNaN(got) {
				t.Fatalf("Beats(%v) is %v", q, got)
			}
		}
		if reach := a.Reach(f.Median(), step, &known); reach < f.Beats(f.Median())-1e-9 || reach > 1 {
			t.Fatalf("a chance of %v to reach by, of %v to be there", reach, f.Beats(f.Median()))
		}
	})
}

// Many equal results give many atoms that are equal or almost equal. Rounding must not make quantiles between them, or
// Beats, decrease.
func TestQuantilesNeverFall(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 1))
	var points []curve.Point
	for i := range 10 {
		points = append(points, curve.Point{Step: int64(i + 1), Value: rng.NormFloat64()})
	}
	fit, ok := curve.Fit(points, false)
	if !ok {
		t.Fatal("not fitted")
	}
	for range 50 {
		var known curve.Calibration
		score := 20 * rng.Float64()
		for range 300 {
			known.Add(curve.Result{Doublings: float64(1+rng.IntN(2)) / 2, Score: score})
		}
		f := fit.At(20, &known)
		before, chance := math.Inf(-1), 0.0
		for i := range 2_000 {
			q := f.Quantile((float64(i) + 0.5) / 2_000)
			if q < before {
				t.Fatalf("after the quantile %v comes %v", before, q)
			}
			b := f.Beats(q)
			if b < chance || b > 1 {
				t.Fatalf("Beats(%v) is %v after %v", q, b, chance)
			}
			before, chance = q, b
		}
	}
}

// Forecasts do not depend on the metric's unit or offset.
func TestForecastsKeepTheUnitsOfTheMetric(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		points := drawCurve(t)
		scale := rapid.Float64Range(0.01, 100).Draw(t, "scale")
		shift := rapid.Float64Range(-10, 10).Draw(t, "shift")
		other := make([]curve.Point, len(points))
		for i, p := range points {
			other[i] = curve.Point{Step: p.Step * 7, Value: p.Value*scale + shift}
		}
		a, _ := curve.Fit(points, false)
		b, _ := curve.Fit(other, false)
		var known curve.Calibration
		step := points[len(points)-1].Step * 4
		for _, p := range []float64{0.05, 0.5, 0.95} {
			x, y := a.At(step, &known).Quantile(p)*scale+shift, b.At(step*7, &known).Quantile(p)
			if math.Abs(x-y) > 1e-3*scale+1e-6*math.Abs(x) {
				t.Fatalf("quantile %v: %v in one unit, %v in another", p, x, y)
			}
		}
	})
}

func TestCoverageIsCountedAndJudged(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		inside, outside int
		holds           bool
	}{
		{0, 0, false},
		{18, 1, false},
		{18, 2, true},
		{20, 0, true},
		{16, 4, true},
		{15, 5, false},
		{40, 0, false},
		{90, 10, true},
		{170, 30, true},
		{165, 35, false},
		{199, 1, false},
	} {
		var known curve.Calibration
		for i := range c.inside + c.outside {
			known.Add(curve.Result{Doublings: 1, Score: 0.1, Inside: i < c.inside})
		}
		if _, n := known.Coverage(); n != c.inside+c.outside || known.Holds() != c.holds {
			t.Errorf("%d inside and %d outside of %d: holds %v", c.inside, c.outside, n, known.Holds())
		}
	}
}

// Scores that are all on one side move the forecast to that side.
func TestACalibrationLearnsABias(t *testing.T) {
	t.Parallel()
	c, _ := curve.Fit(along(20, 1, func(s float64) float64 { return 1 / s }), false)
	var known curve.Calibration
	before := c.At(40, &known)
	for range 50 {
		known.Learn(before.Claim(), before.Median()-0.5, 1)
	}
	if got, want := c.At(40, &known).Median(), before.Median()-0.5; math.Abs(got-want) > 0.1 {
		t.Errorf("after 50 curves that all ended 0.5 below, the forecast went from %v to %v", before.Median(), got)
	}
}

func BenchmarkForecast50Points(b *testing.B) {
	points := along(50, 10, func(s float64) float64 { return 1/math.Sqrt(s) + 0.01*math.Sin(s) })
	var known curve.Calibration
	for i := range 256 {
		known.Add(curve.Result{Doublings: 1, Score: math.Sin(float64(i))})
	}
	b.ReportAllocs()
	for b.Loop() {
		c, _ := curve.Fit(points, false)
		f := c.At(1000, &known)
		_ = f.Median() + f.Beats(0.02)
	}
}
