package space

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// floatDist is low <= x <= high, or the n values low + k * q if q > 0.
type floatDist struct {
	low, high float64
	log       bool
	q         float64
	n         float64
	// decimals is the precision that removes rounding noise from low + k * q (0.3, not 0.30000000000000004), or -1 for
	// no rounding.
	decimals int
}

func newFloat(field string, p *outbidv1.FloatRange) (dist, error) {
	d := floatDist{low: p.GetLow(), high: p.GetHigh(), log: p.GetLog(), q: p.GetQuantum()}
	for _, f := range []struct {
		name string
		v    float64
	}{{"low", d.low}, {"high", d.high}, {"quantum", d.q}} {
		if math.IsNaN(f.v) || math.IsInf(f.v, 0) {
			return nil, wrong(field+"."+f.name, "%v is not a finite number", f.v)
		}
	}
	switch {
	case d.low >= d.high:
		return nil, wrong(field+".high", "%v is not above low (%v); for one fixed value use constant", d.high, d.low)
	case math.IsInf(d.high-d.low, 0):
		return nil, wrong(field+".high", "%v is too far from low (%v)", d.high, d.low)
	case d.log && d.low <= 0:
		return nil, wrong(field+".low", "must be above 0 for a log range, got %v", d.low)
	case d.q < 0:
		return nil, wrong(field+".quantum", "must be above 0, or 0 for no quantum, got %v", d.q)
	case d.q > d.high-d.low:
		return nil, wrong(field+".quantum", "%v is wider than the range from %v to %v", d.q, d.low, d.high)
	}
	if d.q > 0 {
		// A last value that exceeds high only because of rounding still counts.
		steps := (d.high - d.low) / d.q
		k := math.Round(steps)
		if k-steps > math.Min(1e-6, 1e-9+1e-12*steps) {
			k = math.Floor(steps)
		}
		if k >= float64(maxWhole) {
			return nil, wrong(field+".quantum", "%v gives more than 2^53 values; use a larger one", d.q)
		}
		d.n = k + 1
		d.decimals = max(decimals(d.low), decimals(d.q))
		if d.decimals > 300 {
			d.decimals = -1
		}
	}
	return d, nil
}

// decimals returns the number of digits after the point in x's shortest form.
func decimals(x float64) int {
	mantissa, exponent, _ := strings.Cut(strconv.FormatFloat(math.Abs(x), 'e', -1, 64), "e")
	e, err := strconv.Atoi(exponent)
	if err != nil {
		return 0
	}
	digits := 0
	if _, frac, ok := strings.Cut(mantissa, "."); ok {
		digits = len(frac)
	}
	return max(0, digits-e)
}

// value returns the k-th value of a quantised range.
func (d floatDist) value(k float64) float64 {
	k = math.Min(math.Max(k, 0), d.n-1)
	x := d.low + float64(k*d.q)
	if d.decimals >= 0 {
		if r, err := strconv.ParseFloat(strconv.FormatFloat(x, 'f', d.decimals, 64), 64); err == nil {
			x = r
		}
	}
	return d.clamp(x)
}

func (d floatDist) clamp(x float64) float64 { return math.Min(math.Max(x, d.low), d.high) }

func (d floatDist) at(u float64) any {
	switch {
	case d.q > 0 && d.log:
		x := logBetween(logEdges(d.low, d.value(d.n-1), d.q), u)
		return d.value(math.Round((x - d.low) / d.q))
	case d.q > 0:
		return d.value(math.Floor(u * d.n))
	case d.log:
		return d.clamp(logBetween([2]float64{d.low, d.high}, u))
	default:
		return d.clamp(d.low + float64(u*(d.high-d.low)))
	}
}

// logEdges widens a quantised log range by half a step at both ends, so that the first and the last value get the same
// share of the log scale as their neighbours.
func logEdges(low, last, q float64) [2]float64 {
	return [2]float64{math.Max(low-q/2, low/2), last + q/2}
}

// logBetween interpolates between two positive edges on the log scale. It returns exactly the first for u = 0.
func logBetween(edges [2]float64, u float64) float64 {
	if u == 0 {
		return edges[0]
	}
	lo, hi := math.Log(edges[0]), math.Log(edges[1])
	return math.Exp(lo + float64(u*(hi-lo)))
}

func (d floatDist) check(v any) string {
	x, ok := number(v)
	switch {
	case !ok || math.IsNaN(x):
		return short(show(v)) + " is not a number"
	case x < d.low || x > d.high:
		return fmt.Sprintf("%v is outside %v to %v", x, d.low, d.high)
	case d.q > 0 && math.Abs(d.value(math.Round((x-d.low)/d.q))-x) > 1e-9*d.q:
		return fmt.Sprintf("%v is not %v plus a multiple of %v", x, d.low, d.q)
	}
	return ""
}

func (d floatDist) perturb(v any, factor float64, _ *rand.Rand) any {
	x, _ := number(v)
	moved := d.clamp(x * factor)
	if d.q == 0 {
		return moved
	}
	from, to := math.Round((x-d.low)/d.q), math.Round((moved-d.low)/d.q)
	return d.value(oneStep(from, to, x*factor-x))
}

// oneStep moves at least one step in the wanted direction, because a small number would otherwise never change.
func oneStep(from, to, direction float64) float64 {
	switch {
	case from != to || direction == 0:
		return to
	case direction > 0:
		return from + 1
	default:
		return from - 1
	}
}

func (d floatDist) count(points int) uint64 {
	if d.q > 0 {
		return uint64(d.n)
	}
	return uint64(max(points, 1))
}

func (d floatDist) grid(points int) []any {
	out := make([]any, d.count(points))
	for i := range out {
		switch {
		case d.q > 0:
			out[i] = d.value(float64(i))
		case len(out) == 1:
			out[i] = d.at(0.5)
		case i == 0:
			out[i] = d.low
		case i == len(out)-1:
			out[i] = d.high
		default:
			out[i] = d.at(float64(i) / float64(len(out)-1))
		}
	}
	return out
}

// number returns a value as a float64, and false if it is not a number.
func number(v any) (float64, bool) {
	switch v := v.(type) {
	case float64:
		return v, true
	case int64:
		return float64(v), true
	default:
		return 0, false
	}
}
