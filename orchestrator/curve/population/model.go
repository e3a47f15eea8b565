package population

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
)

const (
	// maxMeasured is the maximum number of curves in a process. They are taken evenly from the most to the least
	// informative ones. The curves trained longest are the best ones, and with only those, all configurations would
	// look good.
	maxMeasured = 96
	// surelyEnded is the variance with of a completed curve as a measurement of the end of its configuration.
	surelyEnded = 0.05
	// ambition is the lowest bar that training should get above. It is a normal score: that of the best 1.4 % of all
	// configurations. With a lower bar, such as that of the first curves that end, the first good curve would be
	// trained to its end before others were tried.
	ambition = 2.2
	// leastSaid is the least information about its end, relative to the end itself, for which a curve is learned from.
	leastSaid = 0.02
)

// A Curve is the known part of a trial's learning curve.
type Curve struct {
	// X is its configuration in the unit cube, or nil if the model does not learn from configurations.
	X []float64
	// Costs are the costs at the looks that it reached, NaN where none was measured.
	Costs []float64
}

// A Model forecasts the curves of a sweep.
type Model struct {
	gittins *GittinsIndex
	beliefs Beliefs
	*standings
	// process is nil if it does not model configurations.
	process *Process
}

// Settings configure a model.
type Settings struct {
	Gittins *GittinsIndex
	Beliefs Beliefs
	// Choices marks the parameters without an order.
	Choices []bool
	// Scale was learned before. Tries is the number of other scales to try, drawn from Random.
	Scale  Scale
	Tries  int
	Random *rand.Rand
}

// Believe returns the beliefs that follow from a sweep's curves.
func Believe(curves []Curve, w *GittinsIndex) Beliefs { return stand(curves, len(w.looks)).learn(w) }

// Learn returns the model of a sweep's curves.
func Learn(curves []Curve, s Settings) *Model {
	m := &Model{gittins: s.Gittins, beliefs: s.Beliefs, standings: stand(curves, len(s.Gittins.looks))}
	m.configure(s)
	return m
}

// configure creates the process for the final place of a configuration, a standard normal variable.
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

// ended returns the places of the curves that ended.
func (m *Model) ended() map[int]forecast {
	ends := map[int]forecast{}
	if len(m.ends) == 0 {
		return ends
	}
	places := make([][]float64, len(m.gittins.courses))
	for p := range places {
		places[p] = m.places(&m.gittins.courses[p])
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

// under returns the forecast of a curve's end under each correlation model.
func (m *Model) under(curve int) []forecast {
	look, standing := m.known(curve, len(m.curves[curve].Costs)-1)
	return m.after(look, standing)
}

func (m *Model) after(look int, standing float64) []forecast {
	under := make([]forecast, len(m.gittins.courses))
	for p := range under {
		under[p] = m.gittins.courses[p].forecastEnd(look, standing)
	}
	return under
}

// mean returns the forecast over all correlation models.
func (m *Model) mean(under []forecast) forecast {
	first, second := 0.0, 0.0
	for p, f := range under {
		w := m.beliefs.Weights[p]
		first, second = first+w*f.mean, second+w*(f.variance+f.mean*f.mean)
	}
	return forecast{first, second - first*first}
}

// Scale returns the scale that was learned, or before without a process.
func (m *Model) Scale(before Scale) Scale {
	if m.process == nil {
		return before
	}
	return m.process.Scale()
}

// An Outlook is the forecast of a curve.
type Outlook struct {
	// Worth is the probability of ending among the best that is gained for each full training.
	Worth float64
	// Chance is the probability of ending better than all curves that ended, for a normal variable with the end's mean
	// and variance under each correlation model; 1 before any curve ended.
	Chance float64
	// Mean and Spread describe the normal score of its end among all configurations.
	Mean, Spread float64
}

// Of returns the forecast of one of the model's curves.
func (m *Model) Of(curve int) Outlook {
	look, standing := m.known(curve, len(m.curves[curve].Costs)-1)
	return m.outlook(len(m.curves[curve].Costs), look, standing)
}

// Fresh returns the forecast of a curve that has not begun. It ignores the configuration: if the chosen ones are better
// than others, the ranks of all later curves shift accordingly.
func (m *Model) Fresh() Outlook { return m.outlook(0, -1, 0) }

// Chances returns the probabilities that a curve and a new curve end better than all curves that ended.
func (m *Model) Chances(curve int) (own, fresh float64) {
	return m.chance(m.under(curve)), m.chance(m.after(-1, 0))
}

// chance returns the probability that a curve ends better than all that ended; 1 before any has.
func (m *Model) chance(under []forecast) float64 {
	chance := 0.0
	for p, f := range under {
		if len(m.beliefs.Bars) == 0 {
			chance += m.beliefs.Weights[p]
		} else {
			chance += m.beliefs.Weights[p] * below((f.mean-m.beliefs.Bars[p])/math.Sqrt(f.variance))
		}
	}
	return chance
}

// end returns the forecast of the end of a configuration that has not begun.
func (m *Model) end(x []float64) forecast {
	if m.process == nil {
		return forecast{0, 1}
	}
	mean, variance := m.process.At(x)
	return forecast{mean, variance}
}

// Promise returns the probability that a configuration that has not begun ends above the bar.
func (m *Model) Promise(x []float64) float64 {
	f, chance := m.end(x), 0.0
	for p, w := range m.beliefs.Weights {
		chance += w * below((f.mean-m.bar(p))/math.Sqrt(f.variance))
	}
	return chance
}

// bar returns the place that training should get above under a correlation model.
func (m *Model) bar(course int) float64 {
	if len(m.beliefs.Bars) == 0 {
		return ambition
	}
	return max(m.beliefs.Bars[course], ambition)
}

// outlook returns the forecast of a curve that passed a number of looks, with its newest rank.
func (m *Model) outlook(passed, look int, standing float64) Outlook {
	var o Outlook
	under := m.after(look, standing)
	for p := range under {
		w, told := m.beliefs.Weights[p], 0.0
		if look >= 0 {
			told = m.gittins.courses[p].told[look]
		}
		if passed < len(m.gittins.looks) {
			o.Worth += w * m.gittins.at(p, passed, told*standing, m.bar(p))
		}
	}
	o.Chance = m.chance(under)
	all := m.mean(under)
	o.Mean, o.Spread = all.mean, math.Sqrt(all.variance)
	return o
}

// Standing returns the rank of a curve, from 1, among all that reached its newest look, and their number.
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
