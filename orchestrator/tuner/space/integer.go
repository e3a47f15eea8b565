package space

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// intDist is the n values low + k * q.
type intDist struct {
	low  int64
	q, n int64
	log  bool
	// quantised is set if the spec has a quantum; a grid then has every value.
	quantised bool
}

func newInt(field string, p *outbidv1.IntRange) (dist, error) {
	low, high, q := p.GetLow(), p.GetHigh(), p.GetQuantum()
	switch {
	case low < -maxWhole:
		return nil, wrong(field+".low", "%d is below -2^53, which not every JSON parser can represent", low)
	case high > maxWhole:
		return nil, wrong(field+".high", "%d is above 2^53, which not every JSON parser can represent", high)
	case low >= high:
		return nil, wrong(field+".high", "%d is not above low (%d); for one fixed value use constant", high, low)
	case p.GetLog() && low <= 0:
		return nil, wrong(field+".low", "must be above 0 for a log range, got %d", low)
	case q < 0:
		return nil, wrong(field+".quantum", "must be at least 1, or 0 for steps of 1, got %d", q)
	case q > high-low:
		return nil, wrong(field+".quantum", "%d is wider than the range from %d to %d", q, low, high)
	}
	step := max(q, 1)
	return intDist{low: low, q: step, n: (high-low)/step + 1, log: p.GetLog(), quantised: q > 0}, nil
}

func (d intDist) value(k int64) int64 { return d.low + min(max(k, 0), d.n-1)*d.q }

func (d intDist) last() int64 { return d.value(d.n - 1) }

func (d intDist) at(u float64) any {
	if !d.log {
		return d.value(int64(u * float64(d.n)))
	}
	return d.value(d.nearest(logBetween(logEdges(float64(d.low), float64(d.last()), float64(d.q)), u)))
}

// nearest returns the index of the value nearest to x, which may be just outside the range.
func (d intDist) nearest(x float64) int64 {
	k := math.Round((x - float64(d.low)) / float64(d.q))
	return int64(math.Min(math.Max(k, -1), float64(d.n)))
}

func (d intDist) check(v any) string {
	x, ok := v.(int64)
	switch {
	case !ok:
		return short(show(v)) + " is not a whole number"
	case x < d.low || x > d.last():
		return fmt.Sprintf("%d is outside %d to %d", x, d.low, d.last())
	case (x-d.low)%d.q != 0:
		return fmt.Sprintf("%d is not %d plus a multiple of %d", x, d.low, d.q)
	}
	return ""
}

func (d intDist) perturb(v any, factor float64, _ *rand.Rand) any {
	x, _ := number(v)
	from, to := d.nearest(x), d.nearest(x*factor)
	return d.value(int64(oneStep(float64(from), float64(to), x*factor-x)))
}

func (d intDist) count(points int) uint64 {
	if d.quantised || d.n <= int64(max(points, 1)) {
		return uint64(d.n)
	}
	return uint64(len(d.spread(max(points, 1))))
}

func (d intDist) grid(points int) []any {
	var ks []int64
	if d.quantised || d.n <= int64(max(points, 1)) {
		for k := range d.n {
			ks = append(ks, k)
		}
	} else {
		ks = d.spread(max(points, 1))
	}
	out := make([]any, len(ks))
	for i, k := range ks {
		out[i] = d.value(k)
	}
	return out
}

// spread returns the indices of at most points different values from end to end, evenly spaced on the scale of the
// range.
func (d intDist) spread(points int) []int64 {
	ks := make([]int64, 0, points)
	for i := range points {
		u := 0.5
		if points > 1 {
			u = float64(i) / float64(points-1)
		}
		x := float64(d.low) + float64(u*float64(d.last()-d.low))
		if d.log {
			x = logBetween([2]float64{float64(d.low), float64(d.last())}, u)
		}
		ks = append(ks, min(max(d.nearest(x), 0), d.n-1))
	}
	return slices.Compact(ks)
}
