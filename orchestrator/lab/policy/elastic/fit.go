package elastic

import (
	"math"

	"github.com/outbid-dev/outbid/orchestrator/policy"
)

const (
	// leastPoints is the fewest points of a curve that are fitted.
	leastPoints = 3
	// aging is the weight of a report relative to the next one.
	aging = 0.9
	// steepness of the loss that is assumed for a job with too few reports.
	steepness = 10
)

// predict returns a job's normalised loss by step. Only differences of it are meaningful.
func predict(j *policy.Job) func(step float64) float64 {
	if len(j.Curve) >= leastPoints {
		if loss := fit(j.Curve, j.Minimise); loss != nil {
			return loss
		}
	}
	total := float64(max(j.TotalSteps, j.UntilStep, 2*j.Step, 1))
	return func(step float64) float64 { return 1 / (1 + steepness*step/total) }
}

// fit returns the curve A*phi(step)+d, A >= 0, with the least weighted squares over a grid of shapes phi, or nil if the
// history contains NaN or infinity.
func fit(history []policy.Point, minimise bool) func(step float64) float64 {
	last := max(1, float64(history[len(history)-1].Step))
	xs, ys := make([]float64, len(history)), make([]float64, len(history))
	low, high := math.Inf(1), math.Inf(-1)
	for i, p := range history {
		if math.IsNaN(p.Value) || math.IsInf(p.Value, 0) {
			return nil
		}
		xs[i], ys[i] = float64(p.Step)/last, p.Value
		if !minimise {
			ys[i] = -p.Value
		}
		low, high = min(low, ys[i]), max(high, ys[i])
	}
	if !(high > low) {
		return func(float64) float64 { return 0 }
	}
	for i := range ys {
		ys[i] -= low // keeps precision in the sums of squares
	}
	var best func(x float64) float64
	scale, least := 0.0, math.Inf(1)
	try := func(phi func(x float64) float64) {
		if a, squares := regress(xs, ys, phi); squares < least {
			best, scale, least = phi, a/(high-low), squares
		}
	}
	for _, b := range [...]float64{0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10} {
		try(func(x float64) float64 { return 1 / (x + b) })
	}
	for _, r := range [...]float64{0.1, 0.3, 1, 3, 10, 30} {
		try(func(x float64) float64 { return math.Exp(-r * x) })
	}
	if best == nil {
		return nil
	}
	return func(step float64) float64 { return scale * best(step/last) }
}

// regress fits y = a*phi(x)+d by weighted least squares with a >= 0, and also returns the remaining squares.
func regress(xs, ys []float64, phi func(x float64) float64) (a, squares float64) {
	var w, p, y, pp, py, yy float64
	weight := 1.0
	for i := len(xs) - 1; i >= 0; i-- {
		f := phi(xs[i])
		w += weight
		p += float64(weight * f)
		y += float64(weight * ys[i])
		pp += float64(weight * f * f)
		py += float64(weight * f * ys[i])
		yy += float64(weight * ys[i] * ys[i])
		weight *= aging
	}
	varies, along := pp-float64(p*p/w), py-float64(p*y/w)
	squares = yy - float64(y*y/w)
	if varies <= 0 || along <= 0 {
		return 0, squares
	}
	return along / varies, squares - float64(along*along/varies)
}
