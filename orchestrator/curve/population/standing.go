package population

import (
	"cmp"
	"math"
	"slices"
)

// A costed is a curve with its cost at a look, or with its least cost if it ended.
type costed struct {
	curve int
	cost  float64
}

// standings are the ranks of curves at each look among all that have begun.
type standings struct {
	// at[k][i] is the rank of curve i at look k, NaN if it has none; higher is better.
	at     [][]float64
	curves []Curve
	// begun is the number of curves that have passed a look.
	begun int
	// ends are the newest curves that ended, in ascending order of the least cost.
	ends []costed
}

// stand computes the ranks of curves.
func stand(curves []Curve, looks int) *standings {
	s := &standings{at: make([][]float64, looks-1), curves: curves}
	for i, c := range curves {
		if len(c.Costs) > 0 {
			s.begun++
		}
		if best := c.best(); len(c.Costs) == looks && !math.IsNaN(best) {
			s.ends = append(s.ends, costed{i, best})
		}
	}
	s.ends = s.ends[max(0, len(s.ends)-mostEnds):]
	slices.SortStableFunc(s.ends, func(a, b costed) int { return cmp.Compare(a.cost, b.cost) })
	for k := range s.at {
		s.at[k] = standAt(curves, k, s.begun)
	}
	return s
}

// at returns the cost at a look, or NaN.
func (c *Curve) at(k int) float64 {
	if k < len(c.Costs) {
		return c.Costs[k]
	}
	return math.NaN()
}

// best returns the least known cost of a curve, or NaN.
func (c *Curve) best() float64 {
	best := math.NaN()
	for _, v := range c.Costs {
		if !(v >= best) && !math.IsNaN(v) {
			best = v
		}
	}
	return best
}

// standAt computes the ranks at a look. Curves that did not reach it rank behind those that did, because curves
// with good ranks were continued. Curves that reached it without a cost are ignored. The alternative, which needs
// no such assumption, is to distribute the ranks of the previous look among the curves that reached this one. It
// was worse on hard curves: regret 0.24 instead of 0.20 on AlgoPerf's development tasks.
func standAt(curves []Curve, k, begun int) []float64 {
	at := make([]float64, len(curves))
	var there []costed
	for i, c := range curves {
		at[i] = math.NaN()
		switch {
		case k >= len(c.Costs):
		case math.IsNaN(c.Costs[k]):
			begun--
		default:
			there = append(there, costed{i, c.Costs[k]})
		}
	}
	slices.SortFunc(there, func(a, b costed) int { return cmp.Compare(a.cost, b.cost) })
	for i := 0; i < len(there); {
		j := i
		for j < len(there) && there[j].cost == there[i].cost {
			j++
		}
		for _, e := range there[i:j] { // equal costs share their ranks
			at[e.curve] = quantile(1 - float64(i+j)/2/float64(begun))
		}
		i = j
	}
	return at
}

// known returns a curve's newest look up to k that has a rank, and the rank, or -1.
func (s *standings) known(curve, k int) (look int, standing float64) {
	for k = min(k, len(s.at)-1); k >= 0; k-- {
		if z := s.at[k][curve]; !math.IsNaN(z) {
			return k, z
		}
	}
	return -1, 0
}
