package space

import "math"

// Coordinates returns a point of the unit cube for a configuration, the inverse of At. If from, the point that the
// configuration was made from, is not nil, numbers keep its coordinates; otherwise they get the middle of the
// coordinates that give the value. Choices get the middle of their interval, and parameters that the configuration
// lacks get absent.
func (s *Space) Coordinates(cfg Config, from []float64, absent float64) []float64 {
	u := make([]float64, s.Dims())
	for _, l := range s.leaves {
		if l.dim < 0 {
			continue
		}
		u[l.dim] = absent
		v, ok := lookup(cfg, l.keys)
		if !ok {
			continue
		}
		if _, choice := l.dist.(choiceDist); from != nil && !choice {
			u[l.dim] = from[l.dim]
		} else {
			u[l.dim] = where(l.dist, v)
		}
	}
	return u
}

// Unordered reports for each coordinate whether it is a choice, whose values have no order.
func (s *Space) Unordered() []bool {
	u := make([]bool, s.Dims())
	for _, l := range s.leaves {
		if _, ok := l.dist.(choiceDist); ok && l.dim >= 0 {
			u[l.dim] = true
		}
	}
	return u
}

// halvings is the number of bisection steps for the coordinate of a number.
const halvings = 40

// where returns the coordinate of a value: the middle of all coordinates that give it.
func where(d dist, v any) float64 {
	if c, ok := d.(choiceDist); ok {
		for i := range c.values {
			if equal(c.values[i], v) {
				return (float64(i) + 0.5) / float64(len(c.values))
			}
		}
		return 0
	}
	x, ok := number(v)
	if !ok {
		return 0
	}
	edge := func(passed func(at float64) bool) float64 {
		low, high := 0.0, 1.0
		for range halvings {
			middle := low + (high-low)/2
			if at, _ := number(d.at(clampUnit(middle))); passed(at) {
				high = middle
			} else {
				low = middle
			}
		}
		return low
	}
	return (edge(func(at float64) bool { return at >= x }) + edge(func(at float64) bool { return at > x })) / 2
}

// Beyond returns a point for a configuration of another space. Numbers outside of this space's ranges get coordinates
// outside of the unit cube; parameters that the configuration lacks and choices that this space lacks get NaN.
func (s *Space) Beyond(cfg Config) []float64 {
	u := make([]float64, s.Dims())
	for _, l := range s.leaves {
		if l.dim < 0 {
			continue
		}
		u[l.dim] = math.NaN()
		if v, ok := lookup(cfg, l.keys); ok {
			u[l.dim] = beyond(l.dist, v)
		}
	}
	return u
}

func beyond(d dist, v any) float64 {
	if c, ok := d.(choiceDist); ok && !contains(c.values, v) {
		return math.NaN()
	} else if ok {
		return where(d, v)
	}
	x, ok := number(v)
	if !ok {
		return math.NaN()
	}
	switch d := d.(type) {
	case floatDist:
		if x < d.low || x > d.high {
			return along(d.low, d.high, d.log, x)
		}
	case intDist:
		if low, high := float64(d.low), float64(d.last()); x < low || x > high {
			return along(low, high, d.log, x)
		}
	}
	return where(d, v)
}

// along returns the coordinate of a number on the scale of a range.
func along(low, high float64, log bool, x float64) float64 {
	if !log {
		return (x - low) / (high - low)
	}
	if x <= 0 {
		return math.NaN()
	}
	return math.Log(x/low) / math.Log(high/low)
}
