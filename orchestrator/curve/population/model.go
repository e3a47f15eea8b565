package population

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
)

const (
	// maxMeasured bounds the curves that a process is made of. They are taken evenly from those that say much of their ends to those that say
	// little: the ones that were trained for long are the best ones, and alone they would make all configurations look good.
	maxMeasured = 96
	// surelyEnded is the variance of what a curve that was seen to its end says of the end of its configuration.
	surelyEnded = 0.05
	// ambition is the least bar that training is to get above, as a normal score: among the best 1.4 % of all configurations. A lower bar, such as that
	// of the first curves that end, would have the first good one trained to its end before others were looked for.
	ambition = 2.2
	// leastSaid is how much a curve must say of its end to be learned from, in parts of what the end itself says.
	leastSaid = 0.02
)

// A Curve is what is known of a trial.
type Curve struct {
	// X is its configuration in the unit cube, nil if configurations are not to be learned from.
	X []float64
	// Costs at the looks that it got to, NaN where none was measured.
	Costs []float64
}

// A Model forecasts the curves of a sweep.
type Model struct {
	worths  *Worths
	beliefs Beliefs
	*standings
	// process is nil where configurations say nothing.
	process *Process
}

// Settings are how a model learns.
type Settings struct {
	Worths  *Worths
	Beliefs Beliefs
	// Choices are the parameters without an order.
	Choices []bool
	// Scale is what was learned before, and Tries how many others are tried now, drawn from Random.
	Scale  Scale
	Tries  int
	Random *rand.Rand
}

// Believe is what a sweep's curves teach: those that ended, and how steadily all stand at looks.
func Believe(curves []Curve, w *Worths) Beliefs { return stand(curves, len(w.looks)).learn(w) }

// Learn makes the model of a sweep's curves.
func Learn(curves []Curve, s Settings) *Model {
	m := &Model{worths: s.Worths, beliefs: s.Beliefs, standings: stand(curves, len(s.Worths.looks))}
	m.configure(s)
	return m
}

// configure makes the process: of the place of the end of a configuration, a standard normal variable.
func (m *Model) configure(s Settings) {
	var all []Measured
	ends := m.ended()
	for i, c := range m.curves {
		if c.X == nil {
			continue
		}
		f, ended := ends[i]
		if !ended {
			f = m.mean(m.under(i))
			more := 1/f.variance - 1
			if more < leastSaid {
				continue
			}
			f = forecast{f.mean / f.variance / more, 1 / more}
		}
		all = append(all, Measured{c.X, f.mean, f.variance})
	}
	if len(all) == 0 {
		return
	}
	slices.SortStableFunc(all, func(a, b Measured) int { return cmp.Compare(a.Noise, b.Noise) })
	for i, n := 0, len(all); n > maxMeasured && i < maxMeasured; i++ {
		all[i] = all[i*n/maxMeasured]
	}
	m.process = NewProcess(0, 1, s.Scale, s.Choices, all[:min(len(all), maxMeasured)])
	if s.Tries > 0 {
		m.process = m.process.Learn(s.Tries, s.Random)
	}
}

// ended are the places of the curves that ended.
func (m *Model) ended() map[int]forecast {
	ends := map[int]forecast{}
	if len(m.ends) == 0 {
		return ends
	}
	places := make([][]float64, len(m.worths.courses))
	for p := range places {
		places[p] = m.places(&m.worths.courses[p])
	}
	for n, e := range m.ends {
		under := make([]forecast, len(places))
		for p := range places {
			under[p] = forecast{places[p][n], surelyEnded}
		}
		ends[e.curve] = m.mean(under)
	}
	return ends
}

// under is what each course says of a curve's end.
func (m *Model) under(curve int) []forecast {
	look, standing := m.known(curve, len(m.curves[curve].Costs)-1)
	return m.after(look, standing)
}

func (m *Model) after(look int, standing float64) []forecast {
	under := make([]forecast, len(m.worths.courses))
	for p := range under {
		under[p] = m.worths.courses[p].after(look, standing)
	}
	return under
}

// mean is what all courses say together.
func (m *Model) mean(under []forecast) forecast {
	first, second := 0.0, 0.0
	for p, f := range under {
		w := m.beliefs.Weights[p]
		first, second = first+w*f.mean, second+w*(f.variance+f.mean*f.mean)
	}
	return forecast{first, second - first*first}
}

// Scale is what was learned of configurations, or what was known before.
func (m *Model) Scale(before Scale) Scale {
	if m.process == nil {
		return before
	}
	return m.process.Scale()
}

// An Outlook is what is thought of a curve.
type Outlook struct {
	// Worth of a training's steps: a chance to end among the best, for each whole training.
	Worth float64
	// Chance to end better than all that ended, of a normal variable with the end's mean and variance under each course; 1 before any did.
	Chance float64
	// Mean and Spread of the place of its end among all configurations, as a normal score.
	Mean, Spread float64
}

// Of is what is thought of a curve that the model was made of.
func (m *Model) Of(curve int) Outlook {
	look, standing := m.known(curve, len(m.curves[curve].Costs)-1)
	return m.outlook(len(m.curves[curve].Costs), look, standing)
}

// Fresh is what is thought of a curve that is not begun. Its configuration does not count: that the ones which are chosen are better than others
// moves the standings of all that are begun after them.
func (m *Model) Fresh() Outlook { return m.outlook(0, -1, 0) }

// end is what is thought of the end of a configuration that is not begun.
func (m *Model) end(x []float64) forecast {
	if m.process == nil {
		return forecast{0, 1}
	}
	mean, variance := m.process.At(x)
	return forecast{mean, variance}
}

// Promise is the chance of a configuration that is not begun to end above the bar.
func (m *Model) Promise(x []float64) float64 {
	f, chance := m.end(x), 0.0
	for p, w := range m.beliefs.Weights {
		chance += w * below((f.mean-m.bar(p))/math.Sqrt(f.variance))
	}
	return chance
}

// bar is what training is to get above under a course.
func (m *Model) bar(course int) float64 {
	if len(m.beliefs.Bars) == 0 {
		return ambition
	}
	return max(m.beliefs.Bars[course], ambition)
}

// outlook is of a curve that passed so many looks, with its newest standing.
func (m *Model) outlook(passed, look int, standing float64) Outlook {
	var o Outlook
	under := m.after(look, standing)
	for p, f := range under {
		w, told := m.beliefs.Weights[p], 0.0
		if look >= 0 {
			told = m.worths.courses[p].told[look]
		}
		if passed < len(m.worths.looks) {
			o.Worth += w * m.worths.of(p, passed, told*standing, m.bar(p))
		}
		if len(m.beliefs.Bars) == 0 {
			o.Chance += w
		} else {
			o.Chance += w * below((f.mean-m.beliefs.Bars[p])/math.Sqrt(f.variance))
		}
	}
	all := m.mean(under)
	o.Mean, o.Spread = all.mean, math.Sqrt(all.variance)
	return o
}

// Standing is the place of a curve among all that got to its newest look, from 1, and how many those are.
func (m *Model) Standing(curve int) (place, of int) {
	k, at := m.known(curve, len(m.curves[curve].Costs)-1)
	if k < 0 {
		return 1, 1
	}
	place = 1
	for _, z := range m.at[k] {
		if !math.IsNaN(z) {
			of++
		}
		if z > at {
			place++
		}
	}
	return place, of
}
