package population

import (
	"cmp"
	"math"
	"slices"
)

// Beliefs are what a sweep's curves showed about the correlation models. They are plain data. New beliefs are always
// computed from the prior.
type Beliefs struct {
	// Weights are the probabilities of the correlation models, which sum to 1.
	Weights []float64
	// Bars holds for each correlation model the place of the best curve that ended; it is empty before one did.
	Bars []float64
}

// Whole reports whether the beliefs match the present correlation models. Stored ones may be about others.
func (b Beliefs) Whole() bool {
	n := len(CorrelationModels())
	return len(b.Weights) == n && (len(b.Bars) == n || len(b.Bars) == 0)
}

const (
	// endsCount is the weight of the mean over the pairs that contain an ended curve, over all looks. looksCount is
	// that of the mean over the pairs at successive looks.
	endsCount, looksCount = 8, 8
	// mostEnds is the maximum number of ends to learn from. mostThere is the maximum number of curves at a look, and
	// leastThere the minimum from which the steadiness of ranks is judged.
	mostEnds, mostThere, leastThere = 48, 40, 3
)

// Prior returns the beliefs before any curve is known.
func Prior() Beliefs {
	var b Beliefs
	for _, c := range CorrelationModels() {
		b.Weights = append(b.Weights, c.Prior)
	}
	return b
}

// trusted is the smallest correlation of end and quality for which a correlation model's ranks are trusted. soon is the
// smallest correlation of rank and quality after an eighth of training.
const trusted, soon = 0.9, 0.6

// Trust returns the weight of the correlation models whose ranks can be trusted to predict ends: the end follows from the
// quality, and early ranks show the quality.
func (b Beliefs) Trust() float64 {
	trust := 0.0
	for i, c := range CorrelationModels() {
		if c.Sure >= trusted && c.correlationAt(1.0/8) >= soon {
			trust += b.Weights[i]
		}
	}
	return trust
}

// learn computes beliefs from curves. Correlation models are weighted by three likelihoods: of the order in which pairs
// of curves ended, given their ranks at each look; of the order at each look, given that at the look before; and of the
// size of falls. Pairs and looks are correlated, so their mean is used.
func (s *standings) learn(w *GittinsIndex) Beliefs {
	b := Prior()
	logs := make([]float64, len(w.courses))
	fall := s.fall(w.looks)
	for i := range w.courses {
		c := &w.courses[i]
		logs[i] = looksCount*s.steadily(c, w.looks) + fallsCount*c.falling(fall)
		if len(s.ends) > 0 {
			logs[i] += endsCount * s.endings(c)
			b.Bars = append(b.Bars, s.places(c)[0])
		}
	}
	most, total := slices.Max(logs), 0.0
	for i := range b.Weights {
		b.Weights[i] *= math.Exp(logs[i] - most)
		total += b.Weights[i]
	}
	for i := range b.Weights {
		b.Weights[i] /= total
	}
	return b
}

// endings returns the log likelihood of the order in which curves ended.
func (s *standings) endings(c *laid) float64 {
	sum := 0.0
	for k := range c.told {
		said := make([]forecast, len(s.ends))
		for n, e := range s.ends {
			look, standing := s.known(e.curve, k)
			said[n] = c.forecastEnd(look, standing)
			for m, o := range s.ends[:n] {
				if e.cost != o.cost { // ends are in ascending order of their costs
					sum += chanceLog((said[m].mean - said[n].mean) / math.Sqrt(said[n].variance+said[m].variance))
				}
			}
		}
	}
	return 2 * sum / float64(len(s.ends)*max(len(c.told), 1))
}

// steadily returns the log likelihood of the order of curves at looks, given their ranks at the look before.
func (s *standings) steadily(c *laid, looks []int64) float64 {
	all := 0.0
	for k := 1; k < len(s.at); k++ {
		before, now := s.at[k-1], s.at[k]
		var there []int
		for i := range now {
			if !math.IsNaN(now[i]) && !math.IsNaN(before[i]) {
				there = append(there, i)
			}
		}
		if len(there) < leastThere {
			continue
		}
		there = there[max(0, len(there)-mostThere):]
		r := math.Pow(c.Steady, math.Log2(float64(looks[k])/float64(looks[k-1])))
		scale, sum := r/math.Sqrt(2*(1-r*r)), 0.0
		for n, i := range there {
			for _, j := range there[:n] {
				switch cmp.Compare(now[i], now[j]) {
				case 1:
					sum += chanceLog((before[i] - before[j]) * scale)
				case -1:
					sum += chanceLog((before[j] - before[i]) * scale)
				}
			}
		}
		all += 2 * sum / float64(len(there))
	}
	return all / float64(max(len(s.at), 1))
}

// chanceLog returns the log of the probability that a standard normal variable is below z.
func chanceLog(z float64) float64 { return math.Log(max(below(z), 1e-12)) }

// places returns the places of the curves that ended, in ascending order of their costs: the quantiles of the mixture
// of their forecasts.
func (s *standings) places(c *laid) []float64 {
	said := make([]forecast, len(s.ends))
	for n, e := range s.ends {
		look, standing := s.known(e.curve, len(c.told)-1)
		said[n] = c.forecastEnd(look, standing)
	}
	at := make([]float64, len(said))
	for n := range at {
		share := 1 - (float64(n)+0.5)/float64(len(said))
		low, high := -5.0, 6.0
		for range 30 {
			middle, sum := (low+high)/2, 0.0
			for _, f := range said {
				sum += below((middle - f.mean) / math.Sqrt(f.variance))
			}
			if sum < share*float64(len(said)) {
				low = middle
			} else {
				high = middle
			}
		}
		at[n] = (low + high) / 2
	}
	return at
}
