package curve

import "math"

// A Forecast is the distribution of a metric at a step.
type Forecast struct {
	// Step is the step that was forecast, Doublings the number of doublings from the newest step to it.
	Step      int64
	Doublings float64
	// Place is the curve's place.
	Place float64
	// location and scale belong to the cost; scores is the distribution of scores.
	location, scale float64
	maximise        bool
	scores          *scores
}

// At forecasts the metric at a step. A past step is forecast like the newest one.
func (c *Curve) At(step int64, k *Calibration) Forecast {
	location, scale := c.predict(float64(step))
	doublings := math.Log2(max(1, float64(step)/c.newest))
	return Forecast{
		Step: step, Doublings: doublings, Place: c.Place, location: location, scale: scale, maximise: c.maximise,
		scores: k.scores(doublings, c.Place),
	}
}

// Quantile returns the value that the metric is below with probability p.
func (f Forecast) Quantile(p float64) float64 {
	if f.maximise {
		return -(f.location + f.scale*f.scores.quantile(1-p))
	}
	return f.location + f.scale*f.scores.quantile(p)
}

// Median returns the median of the metric.
func (f Forecast) Median() float64 { return f.Quantile(0.5) }

// Mean returns the mean of the metric. Scores are limited, because the mean of a diverging curve does not exist.
func (f Forecast) Mean() float64 { return cost(f.location+f.scale*f.scores.mean(), f.maximise) }

// Interval returns the central interval that contains the metric with probability p. It is wider than the distance of
// the quantiles, to account for the small number of results.
func (f Forecast) Interval(p float64) (low, high float64) {
	low, high = f.scores.interval(p)
	low, high = f.location+f.scale*low, f.location+f.scale*high
	if f.maximise {
		return -high, -low
	}
	return low, high
}

// Beats returns the probability that the metric is better than a value.
func (f Forecast) Beats(value float64) float64 {
	return f.scores.below((cost(value, f.maximise) - f.location) / f.scale)
}

// Reach returns the probability that the metric is better than a value at some step up to by. It is a lower bound: the
// highest probability at any single step.
func (c *Curve) Reach(value float64, by int64, k *Calibration) float64 {
	const looks = 8
	best := 0.0
	for i := range looks {
		step := c.newest * math.Pow(max(1, float64(by)/c.newest), float64(i+1)/looks)
		best = max(best, c.At(int64(math.Round(step)), k).Beats(value))
	}
	return best
}
