package space

import (
	"fmt"
	"math/rand/v2"
)

// maxPerturb is how often Perturb tries to meet the constraints.
const maxPerturb = 100

// Perturb is the explore step of population based training (Jaderberg et al. 2017, section 3): with chance resample
// a parameter is drawn anew; otherwise a number is multiplied by one of the factors, clamped to its range and
// rounded to its steps (an integer or quantised number moves at least one step), and a choice moves to a
// neighbouring value. Constants stay. A parameter that is missing, or was outside the space, is drawn anew; one
// whose condition no longer holds goes away. If no try in 100 meets the constraints, the configuration comes back as
// it was.
func (s *Space) Perturb(cfg Config, rng *rand.Rand, resample float64, factors []float64) Config {
	old := s.values(cfg)
	for range maxPerturb {
		moved := s.build(func(l *leaf) any {
			return s.explore(l, old[s.byPath[l.path]], rng, resample, factors)
		})
		if s.Allowed(moved) {
			return moved
		}
	}
	same, ok := clone(cfg).(map[string]any)
	if !ok {
		return cfg
	}
	return same
}

func (s *Space) explore(l *leaf, v any, rng *rand.Rand, resample float64, factors []float64) any {
	// Both draws are made whatever comes of them, so that one parameter does not shift the randomness of the next.
	anew, u := rng.Float64() < resample, rng.Float64()
	factor := 1.0
	if len(factors) > 0 {
		factor = factors[rng.IntN(len(factors))]
	}
	if _, gone := v.(absent); gone || anew || l.dist.check(v) != "" {
		return l.dist.at(u)
	}
	return l.dist.perturb(v, factor, rng)
}

// A Grid is the finite set of configurations that a grid search tries. Every configuration is in it once: a
// parameter that is absent from a configuration does not multiply it.
type Grid struct {
	space  *Space
	values [][]any
	// lasting tells, by position in the space's order, which decided leaves are still asked about from there on.
	lasting [][]int
	counts  map[string]int
	size    int
}

// maxGrid bounds a grid search.
const maxGrid = 1_000_000

// Grid lays a grid over the space: a float or unquantised int range gets at most points values from end to end, evenly
// spaced on its scale; everything else gets all its values. It is an error if there are more than 1,000,000
// configurations. Constraints are not asked.
func (s *Space) Grid(points int) (*Grid, error) {
	if points < 1 || points > maxGrid {
		return nil, wrong("tuner.grid.points", "%d is not from 1 to %d", points, maxGrid)
	}
	g := &Grid{space: s, values: make([][]any, len(s.leaves)), counts: map[string]int{}}
	for i, l := range s.leaves {
		if n := l.dist.count(points); n > maxGrid {
			return nil, wrong(l.field, "has %d values, more than the %d configurations of a grid; use a larger quantum", n, maxGrid)
		}
		g.values[i] = l.dist.grid(points)
	}
	g.lasting = s.lasting()
	current := make([]any, len(s.leaves))
	for i := range current {
		current[i] = absent{}
	}
	g.size = g.count(0, current)
	if g.size > maxGrid {
		return nil, wrong("space", "has more than %d configurations as a grid; use fewer points, larger quanta, or random", maxGrid)
	}
	return g, nil
}

// lasting lists, for each position in the order, the leaves decided before it that a condition at it or later asks
// about: all that the rest of the grid depends on.
func (s *Space) lasting() [][]int {
	lasting := make([][]int, len(s.order)+1)
	asked := map[int]bool{}
	for pos := len(s.order) - 1; pos >= 0; pos-- {
		for _, c := range s.leaves[s.order[pos]].when {
			asked[c.target] = true
		}
		for before := range pos {
			if asked[s.order[before]] {
				lasting[pos] = append(lasting[pos], s.order[before])
			}
		}
	}
	return lasting
}

// count is how many ways there are to go on from a position, maxGrid+1 if more than that.
func (g *Grid) count(pos int, current []any) int {
	if pos == len(g.space.order) {
		return 1
	}
	key := fmt.Sprint(pos)
	for _, i := range g.lasting[pos] {
		key += "|" + show(current[i])
	}
	if n, known := g.counts[key]; known {
		return n
	}
	i := g.space.order[pos]
	total := 0
	if !holds(g.space.leaves[i].when, current) {
		total = g.count(pos+1, current)
	} else if g.matters(pos) {
		for _, v := range g.values[i] {
			current[i] = v
			total = min(total+g.count(pos+1, current), maxGrid+1)
			if total > maxGrid {
				break
			}
		}
		current[i] = absent{}
	} else {
		current[i] = g.values[i][0]
		total = min(len(g.values[i])*g.count(pos+1, current), maxGrid+1)
		current[i] = absent{}
	}
	g.counts[key] = total
	return total
}

// matters reports whether the leaf decided at a position is asked about later.
func (g *Grid) matters(pos int) bool {
	for _, i := range g.lasting[pos+1] {
		if i == g.space.order[pos] {
			return true
		}
	}
	return false
}

// Size is the number of configurations.
func (g *Grid) Size() int { return g.size }

// At is the i-th configuration, 0 <= i < Size; numbers outside are clamped. The last parameter in the order of the
// conditions changes fastest.
func (g *Grid) At(i int) Config {
	i = min(max(i, 0), g.size-1)
	current := make([]any, len(g.space.leaves))
	for k := range current {
		current[k] = absent{}
	}
	for pos, leaf := range g.space.order {
		if !holds(g.space.leaves[leaf].when, current) {
			continue
		}
		for _, v := range g.values[leaf] {
			current[leaf] = v
			n := g.count(pos+1, current)
			if i < n {
				break
			}
			i -= n
		}
	}
	return g.space.assemble(current)
}

// GridSize is the number of configurations of Grid(points).
func (s *Space) GridSize(points int) (int, error) {
	g, err := s.Grid(points)
	if err != nil {
		return 0, err
	}
	return g.Size(), nil
}
