package space

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// normalDist is a normally distributed number, rounded to a multiple of q if q > 0. It has no bounds.
type normalDist struct {
	mean, sd, q float64
	// decimals is the precision that removes rounding noise from k * q.
	decimals int
}

func newNormal(field string, p *outbidv1.Normal) (dist, error) {
	d := normalDist{mean: p.GetMean(), sd: p.GetSd(), q: p.GetQuantum(), decimals: decimals(p.GetQuantum())}
	for _, f := range []struct {
		name string
		v    float64
	}{{"mean", d.mean}, {"sd", d.sd}, {"quantum", d.q}} {
		if math.IsNaN(f.v) || math.IsInf(f.v, 0) {
			return nil, wrong(field+"."+f.name, "%v is not a finite number", f.v)
		}
	}
	switch {
	case d.sd <= 0:
		return nil, wrong(field+".sd", "%v is not above 0; for one fixed value use constant", d.sd)
	case math.Abs(d.mean)+10*d.sd > math.MaxFloat64/2:
		return nil, wrong(field+".sd", "%v is too wide about a mean of %v", d.sd, d.mean)
	case d.q < 0:
		return nil, wrong(field+".quantum", "must be above 0, or 0 for no quantum, got %v", d.q)
	case d.q > 0 && (math.Abs(d.mean)+10*d.sd)/d.q > float64(maxWhole):
		return nil, wrong(field+".quantum", "%v gives more than 2^53 values; use a larger one", d.q)
	}
	return d, nil
}

// at returns the quantile u. The extreme values are 8.2 standard deviations from the mean.
func (d normalDist) at(u float64) any {
	const least = 1.0 / (1 << 53)
	u = math.Min(math.Max(u, least), 1-least)
	return d.round(d.mean + float64(d.sd*float64(math.Sqrt2*math.Erfinv(2*u-1))))
}

func (d normalDist) round(x float64) float64 {
	if d.q == 0 {
		return x
	}
	x = math.Round(x/d.q) * d.q
	if d.decimals <= 300 {
		if r, err := strconv.ParseFloat(strconv.FormatFloat(x, 'f', d.decimals, 64), 64); err == nil {
			x = r
		}
	}
	return x + 0 // converts negative zero to zero
}

func (d normalDist) check(v any) string {
	x, ok := number(v)
	switch {
	case !ok || math.IsNaN(x) || math.IsInf(x, 0):
		return short(show(v)) + " is not a number"
	case d.q > 0 && math.Abs(d.round(x)-x) > 1e-9*d.q:
		return fmt.Sprintf("%v is not a multiple of %v", x, d.q)
	}
	return ""
}

func (d normalDist) perturb(v any, factor float64, _ *rand.Rand) any {
	x, _ := number(v)
	if d.q == 0 {
		return x * factor
	}
	return d.round(oneStep(math.Round(x/d.q), math.Round(x*factor/d.q), x*factor-x) * d.q)
}

func (d normalDist) count(points int) uint64 { return uint64(len(d.grid(points))) }

// grid returns evenly spaced quantiles.
func (d normalDist) grid(points int) []any {
	n := max(points, 1)
	out := make([]any, n)
	for i := range out {
		out[i] = d.at((float64(i) + 0.5) / float64(n))
	}
	return slices.Compact(out)
}
