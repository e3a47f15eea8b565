package sample

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/tuner/space"
)

// Grid draws every configuration of a grid that meets the constraints, once.
type Grid struct {
	space  *space.Space
	grid   *space.Grid
	points int
	next   int
	drawn  int
	// seen holds hashes of the configurations drawn before the space was widened.
	seen map[uint64]bool
	// total is the number of configurations that meet the constraints, or -1 before they were counted.
	total int
}

var _ Sampler = (*Grid)(nil)

// NewGrid returns a sampler over a grid. points is the maximum number of values of a float or unquantised int range.
func NewGrid(s *space.Space, points int) (*Grid, error) {
	g, err := s.Grid(points)
	if err != nil {
		return nil, err
	}
	return &Grid{space: s, grid: g, points: points, seen: map[uint64]bool{}, total: -1}, nil
}

func restoreGrid(s *space.Space, st state) (*Grid, error) {
	g, err := NewGrid(s, st.Points)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadSnapshot, err)
	}
	if st.Next > uint64(g.grid.Size()) {
		return nil, fmt.Errorf("%w: it is at point %d of a grid of %d points", ErrBadSnapshot, st.Next, g.grid.Size())
	}
	g.next, g.drawn = int(st.Next), st.Drawn
	for _, h := range st.Seen {
		g.seen[h] = true
	}
	return g, nil
}

// Next returns the next configuration of the grid.
func (g *Grid) Next() (Config, bool, error) {
	for g.next < g.grid.Size() {
		cfg := g.grid.At(g.next)
		g.next++
		fresh, err := g.fresh(cfg)
		if err != nil {
			return nil, false, err
		}
		if fresh {
			g.drawn++
			return cfg, true, nil
		}
	}
	if g.drawn == 0 {
		return nil, false, errors.New("constraints: no configuration of the grid meets all of them; relax them or refine the grid")
	}
	return nil, false, nil
}

// fresh reports whether a configuration meets the constraints and was not drawn before the space was widened.
func (g *Grid) fresh(cfg Config) (bool, error) {
	if !g.space.Allowed(cfg) {
		return false, nil
	}
	if len(g.seen) == 0 {
		return true, nil
	}
	h, err := hash(cfg)
	return !g.seen[h], err
}

// Total returns the number of configurations that the grid draws in total, including those already drawn. If there are
// constraints, the first call visits the whole grid.
func (g *Grid) Total() (int, error) {
	if g.total >= 0 {
		return g.total, nil
	}
	n := g.drawn
	for i := g.next; i < g.grid.Size(); i++ {
		fresh, err := g.fresh(g.grid.At(i))
		if err != nil {
			return 0, err
		}
		if fresh {
			n++
		}
	}
	g.total = n
	return n, nil
}

// Widen lays the grid over a wider space and skips configurations that were already drawn.
func (g *Grid) Widen(s *space.Space) error {
	grid, err := s.Grid(g.points)
	if err != nil {
		return err
	}
	seen := maps.Clone(g.seen)
	for i := range g.next {
		h, err := hash(g.grid.At(i))
		if err != nil {
			return err
		}
		seen[h] = true
	}
	g.space, g.grid, g.seen = s, grid, seen
	g.next, g.total = 0, -1
	return nil
}

// Snapshot returns the position in the grid.
func (g *Grid) Snapshot() ([]byte, error) {
	return json.Marshal(state{
		Kind: "grid", Next: uint64(g.next), Points: g.points, Drawn: g.drawn, Seen: slices.Sorted(maps.Keys(g.seen)),
	})
}

// hash returns 64 bits of the configuration's SHA-256. A collision would skip a configuration; with a million
// configurations its probability is 1 in 10^7.
func hash(cfg Config) (uint64, error) {
	text, err := space.Canonical(cfg)
	if err != nil {
		return 0, err
	}
	sum := sha256.Sum256([]byte(text))
	return binary.BigEndian.Uint64(sum[:8]), nil
}
