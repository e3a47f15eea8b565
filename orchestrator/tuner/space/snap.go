package space

import (
	"math"
	"sort"
)

// mostSnapped is the number of values up to which a number counts as discrete. Above that it is treated as continuous,
// except for the first values of whole numbers on a log scale, which have wide intervals.
const mostSnapped = 64

// steps are the coordinates where the value of a parameter changes, or none if it is continuous.
type steps struct {
	edges []float64
	// open is set if the values above the last edge count as continuous.
	open bool
}

func stepsOf(d dist) (s steps) {
	switch d := d.(type) {
	case choiceDist:
		for i := range len(d.values) - 1 {
			s.edges = append(s.edges, float64(i+1)/float64(len(d.values)))
		}
		return s
	case normalDist:
		return s
	case floatDist:
		if d.q == 0 {
			return s
		}
	case intDist:
		if s.open = d.log && d.n > mostSnapped; s.open {
			for k := range int64(mostSnapped) {
				s.edges = append(s.edges, edgeBelow(d, d.value(k+1)))
			}
			return s
		}
		if d.n > mostSnapped {
			return s
		}
	}
	if d.count(mostSnapped+1) > mostSnapped {
		return s
	}
	for _, v := range d.grid(mostSnapped + 1)[1:] {
		s.edges = append(s.edges, edgeBelow(d, v))
	}
	return s
}

// edgeBelow returns the least coordinate that gives v or a greater number.
func edgeBelow(d dist, v any) float64 {
	x, _ := number(v)
	low, high := 0.0, 1.0
	for range halvings {
		middle := low + (high-low)/2
		if at, _ := number(d.at(clampUnit(middle))); at >= x {
			high = middle
		} else {
			low = middle
		}
	}
	return high
}

// Choices returns for each coordinate the number of values of its choice, or 0 for a number.
func (s *Space) Choices() []int {
	n := make([]int, s.Dims())
	for _, l := range s.leaves {
		if c, ok := l.dist.(choiceDist); ok && l.dim >= 0 {
			n[l.dim] = len(c.values)
		}
	}
	return n
}

// A Snapper maps points that give the same configuration to one representative. Make it once for many points.
type Snapper struct {
	space *Space
	steps []steps
}

// Snapper returns a Snapper for the space.
func (s *Space) Snapper() *Snapper {
	n := &Snapper{space: s, steps: make([]steps, s.Dims())}
	for _, l := range s.leaves {
		if l.dim >= 0 {
			n.steps[l.dim] = stepsOf(l.dist)
		}
	}
	return n
}

// Snap returns the representative of a point: discrete values are in the middle of their interval, and absent
// parameters are NaN. It returns false if the configuration breaks a constraint.
func (n *Snapper) Snap(u []float64) ([]float64, bool) {
	p := make([]float64, len(u))
	for d := range p {
		p[d] = n.steps[d].middle(clampUnit(u[d]))
	}
	s := n.space
	conditions := len(s.constraints) > 0
	for _, l := range s.leaves {
		conditions = conditions || len(l.when) > 0
	}
	if !conditions {
		return p, true
	}
	values := make([]any, len(s.leaves))
	for i := range values {
		values[i] = absent{}
	}
	for _, i := range s.order {
		l := s.leaves[i]
		switch {
		case !holds(l.when, values):
			if l.dim >= 0 {
				p[l.dim] = math.NaN()
			}
		case l.dim >= 0:
			values[i] = l.dist.at(clampUnit(u[l.dim]))
		default:
			values[i] = l.dist.at(0)
		}
	}
	return p, len(s.constraints) == 0 || s.Allowed(s.assemble(values))
}

// middle returns the middle of the interval that contains a coordinate, or the coordinate where the parameter is
// continuous.
func (s steps) middle(u float64) float64 {
	edges := s.edges
	i := sort.SearchFloat64s(edges, u)
	if i < len(edges) && edges[i] == u {
		i++ // an edge belongs to the interval above it
	}
	if i == len(edges) && (i == 0 || s.open) {
		return u
	}
	low, high := 0.0, 1.0
	if i > 0 {
		low = edges[i-1]
	}
	if i < len(edges) {
		high = edges[i]
	}
	return (low + high) / 2
}
