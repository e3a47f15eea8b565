package space

// Coordinates is the point of the unit cube that At makes a configuration of, or about that: numbers lie where they were drawn from, choices
// in the middle of what stands for them. Parameters that the configuration lacks are absent. from is the point that the configuration
// was made of, nil if it was not made of one: numbers then lie where they were found.
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

// Unordered says of each coordinate whether it stands for choices that have no order.
func (s *Space) Unordered() []bool {
	u := make([]bool, s.Dims())
	for _, l := range s.leaves {
		if _, ok := l.dist.(choiceDist); ok && l.dim >= 0 {
			u[l.dim] = true
		}
	}
	return u
}

// halvings are how often the place of a number is halved to find it.
const halvings = 40

// where is the coordinate of a value: in the middle of all that give it.
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
