package curve

import (
	"math"
	"slices"
)

// A Point is a metric at a step.
type Point struct {
	Step  int64
	Value float64
}

// MinPoints is the smallest number of points that can be extrapolated.
const MinPoints = 4

const (
	// maxFitted is the maximum number of points that are fitted; more are averaged in groups.
	maxFitted = 64
	// maxUnits limits the prediction of a shape, in units of the curve's spread, beyond which a fit is meaningless.
	maxUnits = 10
	// outlier limits a point, in the same units, because curves have spikes.
	outlier = 3
	// pooling is the exponent of the number of points in their joint weight: the errors of neighbours are correlated.
	pooling = 0.7
	// walkShare is the share of the last-value model in a prediction. The evidence alone would seldom leave it any,
	// because it does not account for smooth curves that turn later.
	walkShare = 0.25
	// floor is the smallest scale, in units of the curve's spread.
	floor = 0.02
)

// A Curve is a fitted learning curve.
type Curve struct {
	// Place is the share of its sweep's curves of the same length that were better. It is NaN after Fit, which means
	// unknown.
	Place float64
	// newest is the newest step that was fitted. A cost is level + unit * y; lower is better.
	newest, level, unit float64
	maximise            bool
	members             []member
	// These are the last-value model, a random walk in the logarithm of the step: end is the smoothed newest value,
	// walk the variance of the change in one doubling of the steps, noise the variance of one point.
	end, walk, noise float64
}

// Fit fits points, which must be in order of their steps. It ignores points that are not finite or not after the
// previous one. It returns false if fewer than MinPoints are left.
func Fit(points []Point, maximise bool) (*Curve, bool) {
	us, ys := usable(points, maximise)
	n := len(us)
	if n < MinPoints {
		return nil, false
	}
	c := &Curve{Place: math.NaN(), newest: us[n-1], maximise: maximise}
	late := slices.Clone(ys[n/4:])
	slices.Sort(late)
	c.level = quantile(late, 0.5)
	c.unit = max(quantile(late, 0.95)-quantile(late, 0.05), 1e-6*math.Abs(c.level), 1e-12)
	ws, sum := make([]float64, n), 0.0
	for i := range us {
		us[i] /= c.newest
		ys[i] = min(max((ys[i]-c.level)/c.unit, -outlier), outlier)
		// Late points say more about the end than early ones.
		ws[i] = us[i]
		sum += ws[i]
	}
	for i := range ws {
		ws[i] *= math.Pow(float64(n), pooling) / sum
	}
	grid := shapes()
	c.members = make([]member, len(grid))
	for i, s := range grid {
		c.members[i] = regress(s, us, ys, ws)
	}
	normalise(c.members)
	c.follow(us, ys, ws)
	return c, true
}

// usable returns the steps and costs of the points that can be fitted, averaged to at most maxFitted.
func usable(points []Point, maximise bool) (us, ys []float64) {
	for _, p := range points {
		step := float64(p.Step)
		if step <= 0 || math.IsNaN(p.Value) || math.IsInf(p.Value, 0) || len(us) > 0 && step <= us[len(us)-1] {
			continue
		}
		us, ys = append(us, step), append(ys, cost(p.Value, maximise))
	}
	group := (len(us) + maxFitted - 1) / maxFitted
	if group <= 1 {
		return us, ys
	}
	// The newest groups are complete, so that the newest point is the end of a group.
	from, k := 0, 0
	for to := (len(us)-1)%group + 1; to <= len(us); to += group {
		sum := 0.0
		for _, y := range ys[from:to] {
			sum += y
		}
		us[k], ys[k] = us[to-1], sum/float64(to-from)
		from, k = to, k+1
	}
	return us[:k], ys[:k]
}

// cost converts a value so that lower is better.
func cost(value float64, maximise bool) float64 {
	if maximise {
		return -value
	}
	return value
}

// follow fits the last-value model.
func (c *Curve) follow(us, ys, ws []float64) {
	var squares, weights float64
	for i := 1; i < len(us); i++ {
		d := ys[i] - ys[i-1]
		squares += ws[i] * d * d
		weights += ws[i]
	}
	c.noise = squares / weights / 2
	few := max(1, min(3, len(us)/4))
	half := 0
	for half+1 < len(us) && us[half+1] <= 0.5 {
		half++
	}
	c.end = mean(ys[len(ys)-few:])
	before := mean(ys[max(0, half-few+1) : half+1])
	c.walk = (c.end-before)*(c.end-before) + c.noise
}

// predict returns the location and the scale of the cost at a step.
func (c *Curve) predict(step float64) (location, scale float64) {
	u := max(1, step/c.newest)
	var m, v float64
	for i := range c.members {
		mean, variance := c.members[i].at(u)
		m += c.members[i].weight * mean
		v += c.members[i].weight * (variance + mean*mean)
	}
	v = max(0, v-m*m)
	walk := c.noise + c.walk*math.Log2(u)
	at := (1-walkShare)*m + walkShare*c.end
	variance := (1-walkShare)*(v+(m-at)*(m-at)) + walkShare*(walk+(c.end-at)*(c.end-at))
	return c.level + c.unit*at, c.unit * math.Sqrt(variance+floor*floor)
}

func mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}

// quantile returns an interpolated quantile of values in ascending order.
func quantile(rising []float64, p float64) float64 {
	at := p * float64(len(rising)-1)
	i := int(at)
	if i+1 >= len(rising) {
		return rising[len(rising)-1]
	}
	f := at - float64(i)
	return rising[i]*(1-f) + rising[i+1]*f
}
