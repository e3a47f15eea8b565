package curve

import (
	"cmp"
	"math"
	"slices"
)

const (
	// maxScore limits scores, because a diverged curve is off by any number of scales.
	maxScore = 20
	// maxResults is the number of results that a calibration keeps; older ones are dropped.
	maxResults = 256
	// priorResults is the number of results that the built-in prior initially counts for. The prior counts half after
	// as many results.
	priorResults = 4
	// Nominal is the probability of the intervals whose coverage is counted.
	Nominal = 0.9
	// LeastResults is the smallest number of results from which a calibration is judged.
	LeastResults = 20
	// nominalResults is the number of results with nominal coverage that are added, because the coverage of a few
	// results varies by more than the width of the band.
	nominalResults = 20
	// lowest and highest limit the coverage that counts as calibrated.
	lowest, highest = 0.85, 0.95
)

// A Result is the outcome of a forecast.
type Result struct {
	// Doublings is the number of doublings of the steps from the forecast to its step.
	Doublings float64
	// Place is the curve's place among others when it was forecast, or NaN if unknown.
	Place float64
	// Score is the score of the actual value.
	Score float64
	// Weight is the weight of the result among others; 0 means 1.
	Weight float64
	// Inside is set if the value was in the forecast's nominal interval at the time of the forecast.
	Inside bool
}

// A Calibration is what was learned about the errors of forecasts. The zero value knows only the built-in prior. It is
// plain data and can be stored as it is.
type Calibration struct {
	// Results are the newest results, oldest first.
	Results []Result
}

// A Claim is a forecast that is kept until its step is reached. It is plain data.
type Claim struct {
	Step            int64
	Doublings       float64
	Place           float64
	Location, Scale float64
	// Low and High are the scores at the ends of the nominal interval when the forecast was made.
	Low, High float64
	Maximise  bool
}

// Claim returns the forecast in a form that can be checked later.
func (f Forecast) Claim() Claim {
	low, high := f.scores.interval(Nominal)
	return Claim{
		Step: f.Step, Doublings: f.Doublings, Place: f.Place, Location: f.location, Scale: f.scale, Maximise: f.maximise,
		Low: low, High: high,
	}
}

// Score returns the error of the forecast in scales; a positive score is worse. A value that is not finite has the
// worst possible score.
func (c Claim) Score(value float64) float64 {
	z := (cost(value, c.Maximise) - c.Location) / c.Scale
	if math.IsNaN(z) {
		return maxScore
	}
	return min(max(z, -maxScore), maxScore)
}

// Learn adds the outcome of a forecast, NaN for a curve that diverged. With a weight above 1, a result also represents
// others that are unknown because their curves were stopped.
func (k *Calibration) Learn(c Claim, value, weight float64) {
	score := c.Score(value)
	k.Add(Result{Doublings: c.Doublings, Place: c.Place, Score: score, Weight: weight, Inside: c.Low <= score && score <= c.High})
}

// Add adds a result.
func (k *Calibration) Add(r Result) {
	if len(k.Results) >= maxResults {
		k.Results = slices.Delete(k.Results, 0, len(k.Results)-maxResults+1)
	}
	k.Results = append(k.Results, r)
}

// Coverage returns the share of results inside their nominal intervals, and the number of results.
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

// Holds reports whether forecasts may be trusted: at least 20 results are known, and the coverage of the 90 % intervals
// is from 85 % to 95 % after adding 20 results with nominal coverage.
func (k *Calibration) Holds() bool {
	share, n := k.Coverage()
	if n < LeastResults {
		return false
	}
	smooth := (share*float64(n) + Nominal*nominalResults) / float64(n+nominalResults)
	return lowest <= smooth && smooth <= highest
}

// scores is a distribution of scores: atoms in ascending order, and the cumulative weight up to the middle of each,
// normalised to a total of 1.
type scores struct {
	atoms, upTo []float64
	// left and right are the scales of the exponential tails beyond the first and the last atom.
	left, right float64
	// results is the equivalent number of results of equal weight.
	results float64
}

// scores returns the distribution for a forecast over a number of doublings and a curve at a place among others. It
// combines the prior with the results of forecasts over similar distances for curves at similar places.
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

// tails chooses exponential tails through a half at the median and the probability of the outermost atom.
func (s *scores) tails() {
	last, middle := len(s.atoms)-1, s.quantile(0.5)
	s.left = max(1e-3, (middle-s.atoms[0])/math.Log(0.5/s.upTo[0]))
	s.right = max(1e-3, (s.atoms[last]-middle)/math.Log(0.5/(1-s.upTo[last])))
}

// wide corrects for a small number of results: the median position of the i-th of n values is (i-1/3)/(n+1/3) in the
// distribution that they are drawn from (Hyndman and Fan 1996, definition 8), not (i-1/2)/n. Without it, intervals
// cover too little.
func (s *scores) wide() *scores {
	w := &scores{atoms: s.atoms, upTo: make([]float64, len(s.upTo)), results: s.results}
	for i, p := range s.upTo {
		w.upTo[i] = (p*s.results + 1.0/6) / (s.results + 1.0/3)
	}
	w.tails()
	return w
}

// interval returns the interval that contains a score with probability p.
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

// between interpolates from low to high. The result is monotonic in fraction and never outside the two, unlike a
// weighted mean, because of rounding.
func between(low, high, fraction float64) float64 { return min(high, low+(high-low)*fraction) }

// below returns the probability of a score below z.
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

// mean returns the mean by numerical integration of the quantile function.
func (s *scores) mean() float64 {
	const parts = 200
	sum := 0.0
	for i := range parts {
		sum += s.quantile((float64(i) + 0.5) / parts)
	}
	return sum / parts
}
