package curve

import "math"

// A Forecast is what a metric will be at a step: a distribution.
type Forecast struct {
	// Step that was forecast, and how many doublings of the steps seen lie before it.
	Step      int64
	Doublings float64
	// Place is the curve's.
	Place float64
	// location and scale of the cost, and the distribution of scores.
	location, scale float64
	maximise        bool
	scores          *scores
}

// At forecasts the metric at a step under a calibration. A step that was seen is forecast as the newest one.
func (c *Curve) At(step int64, k *Calibration) Forecast {
	location, scale := c.predict(float64(step))
	doublings := math.Log2(max(1, float64(step)/c.newest))
	return Forecast{
		Step: step, Doublings: doublings, Place: c.Place, location: location, scale: scale, maximise: c.maximise,
		scores: k.scores(doublings, c.Place),
	}
}

// Quantile is the value that the metric stays below with probability p.
func (f Forecast) Quantile(p float64) float64 {
	if f.maximise {
		return -(f.location + f.scale*f.scores.quantile(1-p))
	}
	return f.location + f.scale*f.scores.quantile(p)
}

// Median of the metric.
func (f Forecast) Median() float64 { return f.Quantile(0.5) }

// Mean of the metric. Scores are bounded for it: what diverges has no mean.
func (f Forecast) Mean() float64 { return cost(f.location+f.scale*f.scores.mean(), f.maximise) }

// Interval holds the metric with probability p, and leaves out as much below as above. It is wider than the quantiles
// are apart: it makes up for how few results they rest on.
func (f Forecast) Interval(p float64) (low, high float64) {
	low, high = f.scores.interval(p)
	low, high = f.location+f.scale*low, f.location+f.scale*high
	if f.maximise {
		return -high, -low
	}
	return low, high
}

// Beats is the probability that the metric is better than a value.
func (f Forecast) Beats(value float64) float64 {
	return f.scores.below((cost(value, f.maximise) - f.location) / f.scale)
}

// Reach is the probability that the metric is better than a value at some step up to by. It is a bound from below: the
// highest probability of any one of the steps.
func (c *Curve) Reach(value float64, by int64, k *Calibration) float64 {
	const looks = 8
	best := 0.0
	for i := range looks {
		step := c.newest * math.Pow(max(1, float64(by)/c.newest), float64(i+1)/looks)
		best = max(best, c.At(int64(math.Round(step)), k).Beats(value))
	}
	return best
}
