package space

import (
	"math"
	"sort"
)

// mostSnapped is the number of values up to which a number counts as discrete. Above that it is treated as continuous.
const mostSnapped = 64

// steps returns the coordinates where the value of a parameter changes, or nil if it is continuous.
func steps(d dist) (edges []float64) {
	if c, ok := d.(choiceDist); ok {
		for i := range len(c.values) - 1 {
			edges = append(edges, float64(i+1)/float64(len(c.values)))
		}
		return edges
	}
	if _, real := d.(normalDist); real {
		return nil
	}
	if f, ok := d.(floatDist); ok && f.q == 0 {
		return nil
	}
	if d.count(mostSnapped+1) > mostSnapped {
		return nil
	}
	for _, v := range d.grid(mostSnapped + 1)[1:] {
		edges = append(edges, edgeBelow(d, v))
	}
	return edges
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
	edges [][]float64
}

// Snapper returns a Snapper for the space.
func (s *Space) Snapper() *Snapper {
	n := &Snapper{space: s, edges: make([][]float64, s.Dims())}
	for _, l := range s.leaves {
		if l.dim >= 0 {
			n.edges[l.dim] = steps(l.dist)
		}
	}
	return n
}

// Snap returns the representative of a point: discrete values are in the middle of their interval, and absent
// parameters are NaN. It returns false if the configuration breaks a constraint.
func (n *Snapper) Snap(u []float64) ([]float64, bool) {
	p := make([]float64, len(u))
	for d := range p {
		p[d] = middle(n.edges[d], clampUnit(u[d]))
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

// middle returns the middle of the interval that contains a coordinate.
func middle(edges []float64, u float64) float64 {
	if len(edges) == 0 {
		return u
	}
	i := sort.SearchFloat64s(edges, u)
	if i < len(edges) && edges[i] == u {
		i++ // an edge belongs to the interval above it
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
