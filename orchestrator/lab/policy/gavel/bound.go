package gavel

import "math"

// spend returns the least cost, at these prices of worker types, for job i to reach a rate, and the marginal cost: the
// lower convex hull of the types' (rate, price) and the origin. The rate must be at most the fastest type's.
func (p *program) spend(i int, rate float64, price []float64) (cost, marginal float64) {
	a := p.rate[i*p.r : (i+1)*p.r]
	cost, marginal = math.Inf(1), math.Inf(1)
	for hi, fast := range a {
		if fast < rate || fast <= 0 {
			continue
		}
		dear := p.scale[i] * price[hi]
		// Between idling (lo < 0) or a slower type, and this one.
		for lo := -1; lo < p.r; lo++ {
			slow, cheap := 0.0, 0.0
			if lo >= 0 {
				slow, cheap = a[lo], p.scale[i]*price[lo]
			}
			if slow > rate || slow >= fast {
				continue
			}
			slope := (dear - cheap) / (fast - slow)
			if c := cheap + slope*(rate-slow); c < cost || c == cost && slope < marginal {
				cost, marginal = c, slope
			}
		}
	}
	return cost, marginal
}

// beyond returns a t that no allocation can improve on, whatever the prices: the t where the jobs' least costs equal
// the value of all workers. Costs are convex in t, so Newton's method approaches the root from outside and every
// iterate is a bound. t starts at an attained value; limit is where some job would need more than its fastest type.
func (p *program) beyond(price []float64, attained, limit float64) float64 {
	worth := 0.0
	for t, y := range price {
		worth += float64(p.workers[t] * y)
	}
	t, outside := attained, limit
	for range 50 {
		cost, slope := -worth, 0.0
		for i, d := range p.need {
			if d.none {
				continue
			}
			value, first, _ := d.at(t)
			c, m := p.spend(i, min(value, p.top(i)), price)
			cost += float64(p.count[i] * c)
			slope += float64(p.count[i] * m * first)
		}
		// By convexity every t but the first is outside, up to rounding.
		if cost >= -1e-13*worth {
			outside = t
		}
		next := t - cost/slope
		if slope == 0 || p.goal*(next-limit) > 0 {
			next = limit
		}
		if math.Abs(next-t) <= 1e-10*math.Abs(t) || math.Abs(outside-attained) <= 0.1*Tolerance*math.Abs(attained) {
			break
		}
		t = next
	}
	return outside
}
