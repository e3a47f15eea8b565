package curve

import (
	"cmp"
	"math"
	"slices"
)

const (
	// maxScore bounds scores: what diverges is off by any number of scales.
	maxScore = 20
	// maxResults bounds the results that a calibration keeps, the newest.
	maxResults = 256
	// priorResults is how many results the built-in prior counts for at first; it counts for half after as many.
	priorResults = 4
	// Nominal is the probability of the intervals that coverage is counted for.
	Nominal = 0.9
	// LeastResults is the fewest results that a calibration is judged by.
	LeastResults = 20
	// nominalResults is how many results are added that are as they should be: a few scatter more than the band is wide.
	nominalResults = 20
	// lowest and highest are the band of coverage that counts as calibrated.
	lowest, highest = 0.85, 0.95
)

// A Result is what became of a forecast.
type Result struct {
	// Doublings of the steps between the forecast and what it was of.
	Doublings float64
	// Place of the curve among others when it was forecast; NaN if unknown.
	Place float64
	// Score of the value that came.
	Score float64
	// Weight of the result among others; 1 if 0.
	Weight float64
	// Inside: it lay in the forecast's nominal interval, as of when that was made.
	Inside bool
}

// A Calibration is what was learned of how far forecasts are off. The zero value knows the built-in prior alone; it
// is plain data, and so its own snapshot.
type Calibration struct {
	// Results are the newest, oldest first.
	Results []Result
}

// A Claim is what a forecast says, kept until its step comes. It is plain data.
type Claim struct {
	Step            int64
	Doublings       float64
	Place           float64
	Location, Scale float64
	// Low and High are the scores between which the nominal interval lay when the forecast was made.
	Low, High float64
	Maximise  bool
}

// Claim is what the forecast says, to be checked later.
func (f Forecast) Claim() Claim {
	low, high := f.scores.interval(Nominal)
	return Claim{
		Step: f.Step, Doublings: f.Doublings, Place: f.Place, Location: f.location, Scale: f.scale, Maximise: f.maximise,
		Low: low, High: high,
	}
}

// Score is how far a value is from what was forecast, in scales; a positive one is worse. What is not finite is as
// bad as a score can be.
func (c Claim) Score(value float64) float64 {
	z := (cost(value, c.Maximise) - c.Location) / c.Scale
	if math.IsNaN(z) {
		return maxScore
	}
	return min(max(z, -maxScore), maxScore)
}

// Learn takes in what a forecast turned out to be, NaN for a curve that broke. A weight above 1 lets a result stand
// for others that were not seen because their curves were stopped.
func (k *Calibration) Learn(c Claim, value, weight float64) {
	score := c.Score(value)
	k.Add(Result{Doublings: c.Doublings, Place: c.Place, Score: score, Weight: weight, Inside: c.Low <= score && score <= c.High})
}

// Add takes in a result.
func (k *Calibration) Add(r Result) {
	if len(k.Results) >= maxResults {
		k.Results = slices.Delete(k.Results, 0, len(k.Results)-maxResults+1)
	}
	k.Results = append(k.Results, r)
}

// Coverage is the share of results that lay in their nominal intervals, and the number of results.
func (k *Calibration) Coverage() (share float64, n int) {
	inside := 0
	for _, r := range k.Results {
		if r.Inside {
			inside++
		}
	}
	if len(k.Results) == 0 {
		return math.NaN(), 0
	}
	return float64(inside) / float64(len(k.Results)), len(k.Results)
}

// Holds reports whether forecasts may be relied on: at least 20 results are known, and the coverage of the 90 %
// intervals is from 85 % to 95 % once 20 more are counted in that cover as they should.
func (k *Calibration) Holds() bool {
	share, n := k.Coverage()
	if n < LeastResults {
		return false
	}
	smooth := (share*float64(n) + Nominal*nominalResults) / float64(n+nominalResults)
	return lowest <= smooth && smooth <= highest
}

// scores is a distribution of scores: atoms in rising order, and the weight up to the middle of each, over 1.
type scores struct {
	atoms, upTo []float64
	// The tails beyond the first and the last atom fall off exponentially at these scales.
	left, right float64
	// results is how many results of equal weight would say as much.
	results float64
}

// scores for a forecast so many doublings away of a curve at a place among others: the prior, and the results of
// forecasts about as far of curves about there.
func (k *Calibration) scores(doublings, place float64) *scores {
	type atom struct{ at, weight float64 }
	prior, own := priorScores(doublings), 0.0
	atoms := make([]atom, 0, len(prior)+len(k.Results))
	for _, r := range k.Results {
		near := 1 - math.Abs(r.Doublings-doublings)
		// A curve behind the others does better than forecast more often than one in front. Unknown places are NaN.
		if apart := math.Abs(r.Place - place); apart > 0 {
			near *= 1 - apart
		}
		if near > 0 {
			near *= max(1, r.Weight)
			own += near
			atoms = append(atoms, atom{r.Score, near})
		}
	}
	weight := priorResults / (1 + own/priorResults) / float64(len(prior))
	for _, z := range prior {
		atoms = append(atoms, atom{z, weight})
	}
	slices.SortStableFunc(atoms, func(a, b atom) int { return cmp.Compare(a.at, b.at) })
	s := &scores{atoms: make([]float64, len(atoms)), upTo: make([]float64, len(atoms))}
	sum, squares := 0.0, 0.0
	for i, a := range atoms {
		s.atoms[i], s.upTo[i] = a.at, sum+a.weight/2
		sum += a.weight
		squares += a.weight * a.weight
	}
	for i := range s.upTo {
		s.upTo[i] /= sum
	}
	s.results = sum * sum / squares
	s.tails()
	return s
}

// tails lets the probability fall from a half at the median to that of the outermost atom, and on like that.
func (s *scores) tails() {
	last, middle := len(s.atoms)-1, s.quantile(0.5)
	s.left = max(1e-3, (middle-s.atoms[0])/math.Log(0.5/s.upTo[0]))
	s.right = max(1e-3, (s.atoms[last]-middle)/math.Log(0.5/(1-s.upTo[last])))
}

// wide makes up for how few the results are: the i-th of n lies, in the median, at (i-1/3)/(n+1/3) of what they are drawn
// from (Hyndman and Fan 1996, definition 8), and not at (i-1/2)/n. Intervals need that to cover what they should.
func (s *scores) wide() *scores {
	w := &scores{atoms: s.atoms, upTo: make([]float64, len(s.upTo)), results: s.results}
	for i, p := range s.upTo {
		w.upTo[i] = (p*s.results + 1.0/6) / (s.results + 1.0/3)
	}
	w.tails()
	return w
}

// interval holds a score with probability p.
func (s *scores) interval(p float64) (low, high float64) {
	w := s.wide()
	return w.quantile((1 - p) / 2), w.quantile((1 + p) / 2)
}

func (s *scores) quantile(p float64) float64 {
	i, _ := slices.BinarySearch(s.upTo, p)
	last := len(s.atoms) - 1
	switch {
	case i == 0:
		return max(-2*maxScore, s.atoms[0]+s.left*math.Log(max(p, 1e-12)/s.upTo[0]))
	case i > last:
		return min(2*maxScore, s.atoms[last]-s.right*math.Log(max(1-p, 1e-12)/(1-s.upTo[last])))
	}
	return between(s.atoms[i-1], s.atoms[i], (p-s.upTo[i-1])/(s.upTo[i]-s.upTo[i-1]))
}

// between is the value at a fraction of the way from low to high. It never falls as the fraction grows, and never leaves
// the two, which a weighted mean of them does by a rounding.
func between(low, high, fraction float64) float64 { return min(high, low+(high-low)*fraction) }

// below is the probability of a score below z.
func (s *scores) below(z float64) float64 {
	i, _ := slices.BinarySearch(s.atoms, z)
	last := len(s.atoms) - 1
	switch {
	case math.IsNaN(z):
		return 0
	case i == 0:
		return s.upTo[0] * math.Exp((z-s.atoms[0])/s.left)
	case i > last:
		return 1 - (1-s.upTo[last])*math.Exp((s.atoms[last]-z)/s.right)
	case s.atoms[i] == s.atoms[i-1]:
		return s.upTo[i]
	}
	return between(s.upTo[i-1], s.upTo[i], (z-s.atoms[i-1])/(s.atoms[i]-s.atoms[i-1]))
}

// mean by the trapezoids of the quantile function.
func (s *scores) mean() float64 {
	const parts = 200
	sum := 0.0
	for i := range parts {
		sum += s.quantile((float64(i) + 0.5) / parts)
	}
	return sum / parts
}
