package population

import "math"

// A CorrelationModel is a model of how ranks predict ends. A curve has a quality, a standard normal variable, and each
// look reveals more of it. Its end depends on chance and on the quality up to a ceiling, above which all curves are
// alike.
type CorrelationModel struct {
	Name string
	// Told is the correlation of the rank at a look with the quality, after a 32nd, 16th, 8th, quarter and half of
	// training and at its end. Between them it is linear in the logarithm of the steps.
	Told [6]float64
	// Sure is the correlation of the end with the quality below the ceiling.
	Sure    float64
	Ceiling float64
	// Steady is the correlation of ranks with those at twice the steps.
	Steady float64
	// Falls is how much curves fall in a doubling of the steps, relative to the spread of the better half of
	// them.
	Falls float64
	// Prior is the prior probability of the correlation model.
	Prior float64
}

// none is a ceiling above all qualities.
const none = 9

// CorrelationModels returns the models that tasks may follow. They were derived from the development tasks of TaskSet,
// AlgoPerf and LCBench, each roughly following one. On AlgoPerf's ImageNet ResNet, ranks correlate 0.2 with the end
// ("nothing"). On its Criteo, they say nothing until a sixth of training ("late"). On its Conformer, they identify the
// worse third early and do not distinguish the others ("roughly"), or hardly more than the better half ("halfway"). On
// its OGBG, they identify the best curves from half of training on ("slowly"). On LCBench they correlate 0.6 to 0.85
// with the end ("well"), on TaskSet 0.7 to 0.95 ("surely").
//
// The values of Told before an eighth of training are lowered by up to two fifths, because the curves that end best
// begin less well than the correlation over all curves suggests. Otherwise too many of them were given up at the first
// looks.
//
// On AlgoPerf, curves fall in a doubling of the steps by 0.4 to 1.7 of the spread of the better half of 16. On TaskSet
// and LCBench they fall by 0.4 to 0.03 before a 16th of training and by less than 0.15 later. A few looks at a few
// curves therefore distinguish the first five models from the last two long before a curve ends, and the prior can be
// neutral. A prior that trusted ranks lost to random search on hard curves. One that did not, with 0.8 on
// "nothing", lost half of the first four trainings on easy ones.
func CorrelationModels() []CorrelationModel {
	return []CorrelationModel{
		{"nothing", [6]float64{0.3, 0.45, 0.63, 0.8, 0.9, 0.92}, 0.15, none, 0.75, 0.7, 0.4},
		{"late", [6]float64{0.02, 0.04, 0.14, 0.7, 0.85, 0.87}, 0.75, 0.8, 0.75, 0.7, 0.125},
		{"roughly", [6]float64{0.36, 0.56, 0.77, 0.9, 0.95, 0.97}, 0.75, -0.5, 0.8, 0.7, 0.1},
		{"halfway", [6]float64{0.36, 0.56, 0.77, 0.9, 0.95, 0.97}, 0.8, 0.9, 0.82, 0.7, 0.1},
		{"slowly", [6]float64{0.2, 0.3, 0.42, 0.55, 0.75, 0.9}, 0.9, none, 0.8, 0.7, 0.15},
		{"well", [6]float64{0.39, 0.56, 0.74, 0.88, 0.93, 0.95}, 0.9, none, 0.92, 0.1, 0.075},
		{"surely", [6]float64{0.45, 0.62, 0.79, 0.93, 0.97, 1}, 0.98, none, 0.95, 0.1, 0.05},
	}
}

// correlationAt returns the correlation of the rank with the quality after a share of training.
func (c *CorrelationModel) correlationAt(share float64) float64 {
	at := math.Log2(share) + float64(len(c.Told)-1) // 0 at a 32nd
	i := min(max(int(math.Floor(at)), 0), len(c.Told)-2)
	told := c.Told[i] + (at-float64(i))*(c.Told[i+1]-c.Told[i])
	return min(max(told, leastTold), mostTold)
}

// These limit the information of a look.
const leastTold, mostTold = 0.02, 0.995

// A laid is a correlation model applied to a sweep's looks.
type laid struct {
	*CorrelationModel
	// told holds Told at each look except the last, made non-decreasing.
	told []float64
	// ceilingMean and ceilingSpread standardise the quality below the ceiling.
	ceilingMean, ceilingSpread float64
	// luck is the standard deviation of the end that the quality does not explain.
	luck float64
}

// lay applies a correlation model to looks.
func lay(c *CorrelationModel, looks []int64) laid {
	l := laid{CorrelationModel: c, luck: math.Sqrt(1 - c.Sure*c.Sure)}
	last, before := looks[len(looks)-1], 0.0
	for _, step := range looks[:len(looks)-1] {
		before = max(before, c.correlationAt(float64(step)/float64(last)))
		l.told = append(l.told, before)
	}
	// The moments of min(q, c) of a standard normal q.
	tail := 1 - below(c.Ceiling)
	l.ceilingMean = c.Ceiling*tail - density(c.Ceiling)
	square := below(c.Ceiling) - c.Ceiling*density(c.Ceiling) + c.Ceiling*c.Ceiling*tail
	l.ceilingSpread = math.Sqrt(square - l.ceilingMean*l.ceilingMean)
	return l
}

// end returns the mean end of a quality.
func (l *laid) end(quality float64) float64 {
	return l.Sure * (min(quality, l.Ceiling) - l.ceilingMean) / l.ceilingSpread
}

// A forecast is the mean and variance of the final place of a curve.
type forecast struct{ mean, variance float64 }

// forecastEnd forecasts the end of a curve from its rank at a look. look is -1 for a curve without a rank.
func (l *laid) forecastEnd(look int, standing float64) forecast {
	told := 0.0
	if look >= 0 {
		told = l.told[look]
	}
	mean, spread := told*standing, math.Sqrt(1-told*told)
	first, second := 0.0, 0.0
	for _, n := range nodes() {
		e := l.end(mean + spread*n.at)
		first, second = first+n.weight*e, second+n.weight*e*e
	}
	return forecast{first, max(second-first*first, 0) + l.luck*l.luck}
}

// A node is a node of numerical integration over a standard normal variable, with its weight.
type node struct{ at, weight float64 }

// nodes returns the Gauss-Hermite rule with nine points.
func nodes() [9]node {
	return [...]node{
		{-4.512745863399783, 2.234584400774658e-5},
		{-3.205429002856470, 2.789141321231769e-3},
		{-2.076847978677830, 0.049916406765217896},
		{-1.023255663789133, 0.24409750289493948},
		{0, 0.4063492063492063},
		{1.023255663789133, 0.24409750289493948},
		{2.076847978677830, 0.049916406765217896},
		{3.205429002856470, 2.789141321231769e-3},
		{4.512745863399783, 2.234584400774658e-5},
	}
}

// below, density and quantile are the distribution function, density and quantile function of the standard normal
// distribution.
func below(z float64) float64    { return 0.5 * math.Erfc(-z/math.Sqrt2) }
func density(z float64) float64  { return math.Exp(-z*z/2) / math.Sqrt(2*math.Pi) }
func quantile(p float64) float64 { return math.Sqrt2 * math.Erfinv(2*p-1) }
