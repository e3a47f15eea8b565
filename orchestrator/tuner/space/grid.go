package space

import (
	"slices"
	"strconv"
	"strings"
)

// A Grid is the finite set of configurations that a grid search tries. It contains every configuration once: a
// parameter that is absent from a configuration does not multiply it.
type Grid struct {
	space  *Space
	values [][]any
	// lasting lists, for each position in the space's order, the earlier leaves that conditions from there on refer to.
	lasting [][]int
	counts  map[string]int
	// sums holds, for a leaf that later conditions refer to, the number of configurations up to and including each of
	// its values.
	sums map[string][]int
	size int
}

// maxGrid is the maximum number of configurations in a grid.
const maxGrid = 1_000_000

// Grid returns a grid over the space. A float or unquantised int range gets at most points values from end to end,
// evenly spaced on its scale; other parameters get all their values. More than 1,000,000 configurations are an error.
// Constraints are ignored.
func (s *Space) Grid(points int) (*Grid, error) {
	if points < 1 || points > maxGrid {
		return nil, wrong("tuner.grid.points", "must be from 1 to %d, got %d", maxGrid, points)
	}
	g := &Grid{space: s, values: make([][]any, len(s.leaves)), counts: map[string]int{}, sums: map[string][]int{}}
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
		return nil, wrong("space", "has more than %d configurations as a grid; use fewer points, larger quanta, or the random tuner", maxGrid)
	}
	return g, nil
}

// lasting lists, for each position in the order, the earlier leaves that a condition at this position or later refers
// to. The rest of the grid depends on nothing else.
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

// key identifies everything that the rest of the grid from a position on depends on.
func (g *Grid) key(pos int, current []any) string {
	var b strings.Builder
	b.WriteString(strconv.Itoa(pos))
	for _, i := range g.lasting[pos] {
		b.WriteByte('|')
		b.WriteString(show(current[i]))
	}
	return b.String()
}

// count returns the number of configurations of the leaves from a position on, or maxGrid+1 if there are more.
func (g *Grid) count(pos int, current []any) int {
	if pos == len(g.space.order) {
		return 1
	}
	key := g.key(pos, current)
	if n, known := g.counts[key]; known {
		return n
	}
	i := g.space.order[pos]
	total := 0
	switch {
	case !holds(g.space.leaves[i].when, current):
		total = g.count(pos+1, current)
	case !g.matters(pos):
		total = min(len(g.values[i])*g.count(pos+1, current), maxGrid+1)
	default:
		var sums []int
		for _, v := range g.values[i] {
			current[i] = v
			if total = min(total+g.count(pos+1, current), maxGrid+1); total > maxGrid {
				break
			}
			sums = append(sums, total)
		}
		current[i] = absent{}
		g.sums[key] = sums
	}
	g.counts[key] = total
	return total
}

// matters reports whether a later condition refers to the leaf at a position.
func (g *Grid) matters(pos int) bool { return slices.Contains(g.lasting[pos+1], g.space.order[pos]) }

// Size returns the number of configurations.
func (g *Grid) Size() int { return g.size }

// At returns the i-th configuration, 0 <= i < Size; other indices are clamped. The last parameter in the order of
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
		n := 0
		if g.matters(pos) {
			sums := g.sums[g.key(pos, current)]
			n, _ = slices.BinarySearch(sums, i+1)
			if n > 0 {
				i -= sums[n-1]
			}
		} else {
			rest := g.count(pos+1, current)
			n, i = i/rest, i%rest
		}
		current[leaf] = g.values[leaf][n]
	}
	return g.space.assemble(current)
}

// GridSize returns the number of configurations of Grid(points).
func (s *Space) GridSize(points int) (int, error) {
	g, err := s.Grid(points)
	if err != nil {
		return 0, err
	}
	return g.Size(), nil
}
