package population

import (
	"math"
	"slices"
)

const (
	// worst bounds warped costs from above: how bad a bad one is does not matter.
	worst = 3
	// tight is the least unit of a warp, as a part of its level.
	tight = 1e-9
)

// A Warp turns costs into a scale of its own, on which the better half of those that it was made of lies between about -1 and
// 0. It rises with the cost, is nearly straight among the better ones, and grows as a logarithm beyond.
type Warp struct{ Level, Unit float64 }

// NewWarp makes the warp of some costs, of which there must be one at least; those that are not finite count as bad.
func NewWarp(costs []float64) Warp {
	rising := slices.Clone(costs)
	for i, c := range rising {
		if math.IsNaN(c) {
			rising[i] = math.Inf(1)
		}
	}
	slices.Sort(rising)
	rising = slices.DeleteFunc(rising, func(c float64) bool { return math.IsInf(c, 0) })
	if len(rising) == 0 {
		return Warp{0, 1}
	}
	w := Warp{Level: quantile(rising, 0.5)}
	w.Unit = w.Level - quantile(rising, 0.05)
	if w.Unit <= 0 {
		// More than half are alike.
		w.Unit = (rising[len(rising)-1] - rising[0]) / 4
	}
	w.Unit = max(w.Unit, tight*math.Abs(w.Level), math.SmallestNonzeroFloat64)
	return w
}

// At warps a cost; what is not finite is as bad as a cost can be.
func (w Warp) At(cost float64) float64 {
	z := math.Asinh((cost - w.Level) / w.Unit)
	if math.IsNaN(z) {
		return worst
	}
	return min(z, worst)
}

// Back is the cost of a warped one.
func (w Warp) Back(z float64) float64 { return w.Level + w.Unit*math.Sinh(z) }

// quantile of values in rising order, interpolated.
func quantile(rising []float64, p float64) float64 {
	at := p * float64(len(rising)-1)
	i := int(at)
	if i+1 >= len(rising) {
		return rising[len(rising)-1]
	}
	f := at - float64(i)
	return rising[i]*(1-f) + rising[i+1]*f
}
