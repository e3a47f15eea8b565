package population

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
)

// maxMeasured bounds the curves that a process is made of: those that say most of their ends.
const maxMeasured = 64

// surelyEnded is the variance of what a curve that was seen to its end says of the end.
const surelyEnded = 0.01

// A Curve is what is known of a trial.
type Curve struct {
	// X is its configuration in the unit cube, nil if configurations are not to be learned from.
	X []float64
	// Costs at the looks that it got to, NaN where none was measured.
	Costs []float64
}

// A Model forecasts the curves of a sweep.
type Model struct {
	Warp
	chain  *Chain
	ladder *Ladder
	// fresh is what is thought of a curve that is not begun.
	fresh *Path
	// process is nil where configurations say nothing. at is the place of each curve in it, -1 if it has none.
	process  *Process
	at       []int
	means    []float64
	vars     []float64
	warped   [][]float64
	features [][]float64
}

// Settings are how a model learns.
type Settings struct {
	// Looks is how many there are.
	Looks int
	// Choices are the parameters without an order.
	Choices []bool
	// Scale is what was learned before, and Tries how many others are tried now, drawn from Random.
	Scale  Scale
	Tries  int
	Random *rand.Rand
	// Doubt is added to the variance of what a curve that has not ended says of the end of its configuration, in parts of the variance of all
	// ends: the process then learns from ends, and little from forecasts of them.
	Doubt float64
}

// Learn makes the model of a sweep's curves.
func Learn(curves []Curve, s Settings) *Model {
	all := make([][]float64, len(curves))
	for i, c := range curves {
		all[i] = c.Costs
	}
	m := &Model{Warp: NewWarp(all)}
	for _, c := range curves {
		y := make([]float64, len(c.Costs))
		for k, cost := range c.Costs {
			if y[k] = math.NaN(); !math.IsNaN(cost) {
				y[k] = m.Warp.At(cost)
			}
		}
		m.warped, m.features = append(m.warped, y), append(m.features, c.X)
	}
	m.chain = Fit(m.warped, s.Looks)
	m.ladder = NewLadder(m.warped, s.Looks, m.chain)
	m.fresh = m.chain.After(nil)
	m.configure(s)
	return m
}

// configure makes the process.
func (m *Model) configure(s Settings) {
	end := m.fresh.Last()
	mean, variance := m.fresh.Mean[end], m.fresh.Var[end]
	type known struct {
		curve int
		Measured
	}
	var all []known
	for i, y := range m.warped {
		if m.features[i] == nil {
			continue
		}
		value, noise := 0.0, 0.0
		if p := m.chain.After(y); len(p.Mean) == 0 {
			value, noise = y[len(y)-1], surelyEnded
		} else {
			more := 1/p.Var[p.Last()] - 1/variance
			if p.From == 0 || more < 0.02/variance {
				continue // it says next to nothing
			}
			value, noise = (p.Mean[p.Last()]/p.Var[p.Last()]-mean/variance)/more, 1/more+s.Doubt*variance
		}
		all = append(all, known{i, Measured{m.features[i], min(max(value, -2*worst), worst), noise}})
	}
	if len(all) == 0 {
		return
	}
	slices.SortStableFunc(all, func(a, b known) int { return cmp.Compare(a.Noise, b.Noise) })
	all = all[:min(len(all), maxMeasured)]
	m.at = make([]int, len(m.warped))
	for i := range m.at {
		m.at[i] = -1
	}
	points := make([]Measured, len(all))
	for j, k := range all {
		points[j], m.at[k.curve] = k.Measured, j
	}
	m.process = NewProcess(mean, variance, s.Scale, s.Choices, points)
	if s.Tries > 0 {
		m.process = m.process.Learn(s.Tries, s.Random)
	}
	m.means, m.vars = m.process.Without()
}

// Scale is what was learned of configurations, or what was known before.
func (m *Model) Scale(before Scale) Scale {
	if m.process == nil {
		return before
	}
	return m.process.Scale()
}

// Hits are the chances of all curves to get below a warped cost by a look.
func (m *Model) Hits(below float64, to int) *Hit { return m.ladder.Hits(below, to) }

// Chance is that of a path to get below what a hit says: in the mean of what the ladder and the chain say of it, of which the ladder knows no
// configurations, and is moved by as much as the chain is.
func (p *Path) Chance(h *Hit) float64 {
	chain, plain := 0.0, 0.0
	for i := range p.Mean {
		if p.From+i <= h.to {
			chain = max(chain, Below(p.Mean[i], p.Var[i], h.below))
			plain = max(plain, Below(p.plainMean[i], p.plainVar[i], h.below))
		}
	}
	ladder := h.Chance(p.From-1, p.newest)
	if odds := odds(chain) - odds(plain); odds != 0 {
		ladder = 1 / (1 + math.Exp(-logit(ladder)-odds))
	}
	return (chain + ladder) / 2
}

// odds are the log of a chance's, within bounds.
func odds(p float64) float64 { return min(max(logit(p), -12), 12) }

func logit(p float64) float64 { return math.Log(p / (1 - p)) }

// Of forecasts a curve that the model was made of.
func (m *Model) Of(curve int) *Path {
	p := m.chain.After(m.warped[curve])
	if len(p.Mean) == 0 || m.process == nil || m.features[curve] == nil {
		return p
	}
	if at := m.at[curve]; at >= 0 {
		m.lean(p, m.means[at], m.vars[at])
	} else {
		mean, variance := m.process.At(m.features[curve])
		m.lean(p, mean, variance)
	}
	return p
}

// Fresh forecasts a curve that is not begun, of a configuration or, if nil, of any.
func (m *Model) Fresh(x []float64) *Path {
	p := m.chain.After(nil)
	if x != nil && m.process != nil {
		mean, variance := m.process.At(x)
		m.lean(p, mean, variance)
	}
	return p
}

// End is what is thought of the end of a configuration that is not begun: mean and variance.
func (m *Model) End(x []float64) (mean, variance float64) {
	if m.process == nil {
		return m.fresh.Mean[m.fresh.Last()], m.fresh.Var[m.fresh.Last()]
	}
	return m.process.At(x)
}

// lean moves a path by what configurations say of its end.
func (m *Model) lean(p *Path, mean, variance float64) {
	end, fresh := p.Last(), m.fresh.Last()
	more := 1/variance - 1/m.fresh.Var[fresh]
	if more <= 0 {
		return
	}
	value := (mean/variance - m.fresh.Mean[fresh]/m.fresh.Var[fresh]) / more
	value = min(max(value, -2*worst), 2*worst)
	gap := value - p.Mean[end]
	whole := p.Var[end] + 1/more
	p.plainMean, p.plainVar = slices.Clone(p.Mean), slices.Clone(p.Var)
	for i, with := range p.WithLast {
		gain := with / whole
		p.Mean[i] += gain * gap
		p.Var[i] = max(p.Var[i]-gain*with, minNoise)
	}
}

// Below is the chance that a cost at a place of the path is below a warped one.
func (p *Path) Below(i int, z float64) float64 {
	return Below(p.Mean[i], p.Var[i], z)
}

// Below is the chance of a value below z where mean and variance were estimated from few: Student's t with four degrees of freedom,
// whose tails are those of curves that turn.
func Below(mean, variance, z float64) float64 {
	t := (z - mean) / math.Sqrt(variance)
	u := t * t / (1 + t*t/4)
	tail := 3.0 / 8 * math.Sqrt(u) * (1 - u/12)
	if t < 0 {
		tail = -tail
	}
	return min(max(0.5+tail, 0), 1)
}
