package population

import (
	"cmp"
	"math"
	"slices"
)

const (
	// worst bounds warped costs from above: how bad a bad one is does not matter.
	worst = 3
	// knots is how many places a warp is drawn through, and reach where the outermost ones lie.
	knots, reach = 25, 2.25
	// top is the share of the best costs whose spread says how costs go on beyond the best.
	top = 0.1
)

// A Warp turns costs into a scale of their own: that on which those that were seen are spread as a normal distribution is. So it is fine where
// there are many costs, at whatever values; beyond the best it goes on as a straight line.
type Warp struct {
	costs, places []float64
	// slope is the rise of the place with the cost below the least.
	slope float64
}

// NewWarp makes the warp of costs at looks. All looks count for about as much, however many curves got there. Costs that are not finite are
// left out.
func NewWarp(curves [][]float64) Warp {
	type atom struct{ cost, weight float64 }
	var count []float64
	for _, c := range curves {
		for k, v := range c {
			for len(count) <= k {
				count = append(count, 0)
			}
			if finite(v) {
				count[k]++
			}
		}
	}
	var atoms []atom
	sum := 0.0
	for _, c := range curves {
		for k, v := range c {
			if finite(v) {
				w := 1 / math.Sqrt(count[k])
				atoms, sum = append(atoms, atom{v, w}), sum+w
			}
		}
	}
	if len(atoms) == 0 {
		return Warp{costs: []float64{0}, places: []float64{0}, slope: 1}
	}
	slices.SortFunc(atoms, func(a, b atom) int { return cmp.Compare(a.cost, b.cost) })
	w := Warp{}
	i, upTo := 0, 0.0
	for j := range knots {
		place := reach * (2*float64(j)/(knots-1) - 1)
		share := 0.5 * math.Erfc(-place/math.Sqrt2)
		for i+1 < len(atoms) && upTo+atoms[i].weight < share*sum {
			upTo += atoms[i].weight
			i++
		}
		if j == knots-1 {
			i = len(atoms) - 1
		}
		if n := len(w.costs); n == 0 || atoms[i].cost > w.costs[n-1] {
			w.costs, w.places = append(w.costs, atoms[i].cost), append(w.places, place)
		}
	}
	w.slope = w.rise()
	return w
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// rise is the slope of the best costs.
func (w *Warp) rise() float64 {
	to := 1
	for to+1 < len(w.places) && 0.5*math.Erfc(-w.places[to]/math.Sqrt2) < top {
		to++
	}
	if len(w.costs) == 1 {
		return 1 / max(math.Abs(w.costs[0]), math.SmallestNonzeroFloat64)
	}
	return (w.places[to] - w.places[0]) / (w.costs[to] - w.costs[0])
}

// At warps a cost; what is not finite is as bad as a cost can be.
func (w Warp) At(cost float64) float64 {
	if !finite(cost) && !math.IsInf(cost, -1) {
		return worst
	}
	n := len(w.costs)
	i, _ := slices.BinarySearch(w.costs, cost)
	switch {
	case i == 0:
		return w.places[0] + (cost-w.costs[0])*w.slope
	case i == n:
		return min(worst, w.places[n-1]+0.1)
	}
	f := (cost - w.costs[i-1]) / (w.costs[i] - w.costs[i-1])
	return w.places[i-1] + f*(w.places[i]-w.places[i-1])
}

// Back is the cost of a place.
func (w Warp) Back(place float64) float64 {
	n := len(w.places)
	i, _ := slices.BinarySearch(w.places, place)
	switch {
	case i == 0:
		return w.costs[0] + (place-w.places[0])/w.slope
	case i == n:
		return w.costs[n-1]
	}
	f := (place - w.places[i-1]) / (w.places[i] - w.places[i-1])
	return w.costs[i-1] + f*(w.costs[i]-w.costs[i-1])
}
