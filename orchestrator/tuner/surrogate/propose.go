package surrogate

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
)

// These are the numbers of points that a proposal is chosen from.
const (
	drawn   = 256 // random points in the whole cube
	nearest = 5   // best points seen, around which others are drawn
	around  = 32  // points for each of those at each width
	refined = 3   // candidates that are refined
	steps   = 24  // steps of each refinement
)

// widths returns the distances for drawing points around a good point.
func widths() []float64 { return []float64{0.15, 0.04, 0.01} }

// Snap returns the representative of all points that give the same configuration, or false if it must not be tried.
type Snap func(Point) (Point, bool)

// A candidate is a point. value is the logarithm of its expected improvement, or an upper bound.
type candidate struct {
	at    Point
	value float64
}

func byValue(a, b candidate) int { return cmp.Compare(b.value, a.value) }

// Propose returns the point with the highest expected improvement among those that it tries, or false if none may be
// tried. seen are the points tried before, which are not proposed again. effort is the share of the usual number of
// points to try.
func (m *Model) Propose(seen []Point, snap Snap, effort float64, random *rand.Rand) (Point, bool) {
	some := func(n int) int { return max(1, int(effort*float64(n))) }
	tried := triedOf(seen)
	var l look
	var all []candidate
	add := func(at Point) {
		p, ok := snap(at)
		if !ok || tried[key(p)] {
			return
		}
		tried[key(p)] = true
		all = append(all, candidate{at: p, value: logImprovement(m.mean(p, &l), m.spreadBound(&l), m.best)})
	}
	for range some(drawn) {
		add(m.draw(random))
	}
	from := slices.Clone(seen)
	for _, g := range m.guides {
		from = append(from, g.past.best...)
	}
	for _, at := range m.good(from, &l) {
		for _, width := range widths() {
			for range some(around) {
				add(m.near(at, width, random))
			}
		}
	}
	if len(all) == 0 {
		return nil, false
	}
	var best candidate
	for i, c := range m.highest(all, &l) {
		if c = m.refine(c, tried, snap, random, &l); i == 0 || c.value > best.value {
			best = c
		}
	}
	return best.at, true
}

// highest returns the candidates with the highest expected improvement. It computes the improvement only of those whose
// upper bound is high enough.
func (m *Model) highest(all []candidate, l *look) []candidate {
	slices.SortStableFunc(all, byValue)
	var top []candidate
	for _, c := range all {
		if len(top) == refined && c.value <= top[refined-1].value {
			break
		}
		c.value = m.value(c.at, l)
		top = append(top, c)
		slices.SortStableFunc(top, byValue)
		top = top[:min(len(top), refined)]
	}
	return top
}

// explored is the number of standard deviations below the mean in the bound that Explore minimises.
const explored = 2.0

// Explore returns a point where the metric may be far better than predicted: the random point with the lowest bound on
// its cost. If there are choices, one of them gets the value that was tried least.
func (m *Model) Explore(seen []Point, snap Snap, random *rand.Rand) (Point, bool) {
	tried := triedOf(seen)
	choice, value := m.rarest(seen, random)
	var l look
	var best Point
	least := math.Inf(1)
	for range drawn {
		p := m.draw(random)
		if choice >= 0 {
			p[choice] = value
		}
		p, ok := snap(p)
		if !ok || tried[key(p)] {
			continue
		}
		mean := m.mean(p, &l)
		if bound := mean - explored*m.spread(&l); bound < least {
			best, least = p, bound
		}
	}
	return best, best != nil
}

// rarest returns a random choice and its least tried value, or -1 if the space has no choices.
func (m *Model) rarest(seen []Point, random *rand.Rand) (choice int, value float64) {
	var choices []int
	for g, p := range m.parameters {
		if p.Choices > 0 {
			choices = append(choices, g)
		}
	}
	if len(choices) == 0 {
		return -1, 0
	}
	choice = choices[random.IntN(len(choices))]
	n := m.parameters[choice].Choices
	tried := make([]int, n)
	for _, p := range seen {
		if u := p[choice]; !math.IsNaN(u) {
			tried[min(int(u*float64(n)), n-1)]++
		}
	}
	rarest := 0
	for i := range tried {
		if tried[i] < tried[rarest] {
			rarest = i
		}
	}
	return choice, (float64(rarest) + 0.5) / float64(n)
}

// value returns the logarithm of the expected improvement at a point.
func (m *Model) value(at Point, l *look) float64 {
	mean := m.mean(at, l)
	return logImprovement(mean, m.spread(l), m.best)
}

// draw returns a random point.
func (m *Model) draw(random *rand.Rand) Point {
	p := make(Point, len(m.parameters))
	for g := range p {
		p[g] = random.Float64()
	}
	return p
}

// good returns the points seen with the lowest means.
func (m *Model) good(seen []Point, l *look) []Point {
	all := make([]candidate, 0, len(seen))
	for _, p := range seen {
		all = append(all, candidate{at: p, value: -m.mean(p, l)})
	}
	slices.SortStableFunc(all, byValue)
	var points []Point
	for _, c := range all[:min(len(all), nearest)] {
		points = append(points, c.at)
	}
	return points
}

// near returns a point close to another: some of its parameters are changed, numbers by about the width.
func (m *Model) near(at Point, width float64, random *rand.Rand) Point {
	p := slices.Clone(at)
	share := max(1/float64(len(p)), 0.5)
	must := random.IntN(len(p))
	for g, q := range m.parameters {
		if g != must && random.Float64() >= share {
			continue
		}
		switch {
		case math.IsNaN(p[g]) || q.Choices > 0 && (g == must || random.Float64() < width):
			p[g] = random.Float64()
		case q.Choices == 0:
			p[g] = reflect(p[g] + float64(width*random.NormFloat64()))
		}
	}
	return p
}

// refine improves a candidate by random steps that shrink.
func (m *Model) refine(c candidate, tried map[string]bool, snap Snap, random *rand.Rand, l *look) candidate {
	width := 0.05
	for range steps {
		p, ok := snap(m.near(c.at, width, random))
		if !ok || tried[key(p)] {
			continue
		}
		if value := m.value(p, l); value > c.value {
			c = candidate{at: p, value: value}
			width *= 1.5
		} else {
			width = max(width*0.85, 1e-4)
		}
	}
	return c
}

// reflect moves a coordinate into the unit interval by reflection at its ends.
func reflect(u float64) float64 {
	for u < 0 || u >= 1 {
		if u < 0 {
			u = -u
		} else {
			u = 2 - u
		}
		if u == 1 {
			u = math.Nextafter(1, 0)
		}
	}
	return u
}

// triedOf returns the keys of points.
func triedOf(seen []Point) map[string]bool {
	tried := map[string]bool{}
	for _, p := range seen {
		tried[key(p)] = true
	}
	return tried
}

// key returns a map key for a point.
func key(p Point) string {
	b := make([]byte, 0, 8*len(p))
	for _, x := range p {
		bits := math.Float64bits(x)
		b = append(b, byte(bits), byte(bits>>8), byte(bits>>16), byte(bits>>24), byte(bits>>32), byte(bits>>40), byte(bits>>48), byte(bits>>56))
	}
	return string(b)
}
