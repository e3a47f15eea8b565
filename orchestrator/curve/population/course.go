package population

import "math"

// A Course is a way in which standings may tell of ends. A curve has a quality, a standard normal variable, of which each look tells more; its
// end depends on the quality up to a ceiling, above which all are alike, and on chance.
type Course struct {
	Name string
	// Told is the correlation of the standing at a look with the quality, after a 32nd, 16th, 8th, quarter and half of training and at its end;
	// between them it is linear in the logarithm of the steps.
	Told [6]float64
	// Sure is the correlation of the end with the quality below the ceiling.
	Sure    float64
	Ceiling float64
	// Steady is the correlation of standings with those at twice the steps.
	Steady float64
	// Falls is how much curves fall while their steps double, in parts of what the better half of them differ by.
	Falls float64
	// Prior is what is thought of the course before anything was seen.
	Prior float64
}

// none is a ceiling above all qualities.
const none = 9

// Courses are those that tasks may take. They were written down from TaskSet's, AlgoPerf's and LCBench's tasks of development, of which each
// takes one more or less: on AlgoPerf's ImageNet ResNet standings until the end correlate 0.2 with it ("nothing"), on its Criteo they say nothing until a sixth of
// training ("late"), on its Conformer they say early who is among the worse third, and nothing of the others ("roughly"), or hardly more than who is
// among the better half ("halfway"), on its OGBG they tell of the best ones from half of training on ("slowly"), on LCBench
// they correlate 0.6 to 0.85 with the end ("well"), on TaskSet 0.7 to 0.95 ("surely"). What is told before an eighth of training is lowered by up to two
// fifths, as those that end best begin less well than the correlation over all curves says: without that, too many of them were given up at the first looks.
// On AlgoPerf curves fall, while their steps double, by 0.4 to 1.7 of what the better half of 16 differ by; on TaskSet and LCBench by 0.4 to 0.03 before a 16th of
// training and by less than 0.15 later. So a few looks at a few curves tell the first five courses from the last two long before an end does, and neither
// need be supposed beforehand: a prior that trusted standings lost to random search on hard curves, and one that did not, 0.8 on "nothing", cost half of the
// first four trainings on easy ones.
func Courses() []Course {
	return []Course{
		{"nothing", [6]float64{0.3, 0.45, 0.63, 0.8, 0.9, 0.92}, 0.15, none, 0.75, 0.7, 0.4},
		{"late", [6]float64{0.02, 0.04, 0.14, 0.7, 0.85, 0.87}, 0.75, 0.8, 0.75, 0.7, 0.125},
		{"roughly", [6]float64{0.36, 0.56, 0.77, 0.9, 0.95, 0.97}, 0.75, -0.5, 0.8, 0.7, 0.1},
		{"halfway", [6]float64{0.36, 0.56, 0.77, 0.9, 0.95, 0.97}, 0.8, 0.9, 0.82, 0.7, 0.1},
		{"slowly", [6]float64{0.2, 0.3, 0.42, 0.55, 0.75, 0.9}, 0.9, none, 0.8, 0.7, 0.15},
		{"well", [6]float64{0.39, 0.56, 0.74, 0.88, 0.93, 0.95}, 0.9, none, 0.92, 0.1, 0.075},
		{"surely", [6]float64{0.45, 0.62, 0.79, 0.93, 0.97, 1}, 0.98, none, 0.95, 0.1, 0.05},
	}
}

// toldAt is the correlation of the standing with the quality after a share of training.
func (c *Course) toldAt(share float64) float64 {
	at := math.Log2(share) + float64(len(c.Told)-1) // 0 at a 32nd
	i := min(max(int(math.Floor(at)), 0), len(c.Told)-2)
	told := c.Told[i] + (at-float64(i))*(c.Told[i+1]-c.Told[i])
	return min(max(told, leastTold), mostTold)
}

// What a look may tell: never nothing, never all.
const leastTold, mostTold = 0.02, 0.995

// A course of a sweep is one laid over its looks.
type laid struct {
	*Course
	// told is of each look but the last, rising.
	told []float64
	// ceilingMean and ceilingSpread standardise the quality below the ceiling.
	ceilingMean, ceilingSpread float64
	// luck is the part of the end that the quality does not say.
	luck float64
}

// lay lays a course over looks.
func lay(c *Course, looks []int64) laid {
	l := laid{Course: c, luck: math.Sqrt(1 - c.Sure*c.Sure)}
	last, before := looks[len(looks)-1], 0.0
	for _, step := range looks[:len(looks)-1] {
		before = max(before, c.toldAt(float64(step)/float64(last)))
		l.told = append(l.told, before)
	}
	// The moments of min(q, c) of a standard normal q.
	tail := 1 - below(c.Ceiling)
	l.ceilingMean = c.Ceiling*tail - density(c.Ceiling)
	square := below(c.Ceiling) - c.Ceiling*density(c.Ceiling) + c.Ceiling*c.Ceiling*tail
	l.ceilingSpread = math.Sqrt(square - l.ceilingMean*l.ceilingMean)
	return l
}

// end is the mean of the end of a quality.
func (l *laid) end(quality float64) float64 {
	return l.Sure * (min(quality, l.Ceiling) - l.ceilingMean) / l.ceilingSpread
}

// A forecast is what is thought of an end: mean and variance of its place.
type forecast struct{ mean, variance float64 }

// after forecasts the end of a curve from its standing at a look; of one with no standing yet, look is -1.
func (l *laid) after(look int, standing float64) forecast {
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

// A node is where a function of a standard normal variable is looked at to find its mean, and for how much that counts.
type node struct{ at, weight float64 }

// nodes are Gauss and Hermite's rule of nine points.
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

// below is the chance of a standard normal variable to be below z, density its density there, and quantile what it is below with a chance.
func below(z float64) float64    { return 0.5 * math.Erfc(-z/math.Sqrt2) }
func density(z float64) float64  { return math.Exp(-z*z/2) / math.Sqrt(2*math.Pi) }
func quantile(p float64) float64 { return math.Sqrt2 * math.Erfinv(2*p-1) }
