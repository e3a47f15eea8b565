package population

import "math"

const (
	// rungsOf a ladder are places from lowest up, so far apart.
	rungsOf = 45
	lowest  = -3.0
	apart   = 6.0 / (rungsOf - 1)
	// moves from a look to the next are kept up to so many rungs down and up.
	farthest = 30
	// near is how far away, in places, curves say half as much of how one goes on.
	near = 0.35
	// width is how many rungs away a curve counts at all.
	width = 7
	// borrowed is for how much curves count that went on like that from the look before, and supposed for how many curves
	// the chain does.
	borrowed, supposed = 0.25, 3
)

// A Ladder says how costs go on from look to look, as those of the sweep near them did: whatever the shape of what is likely. Where few went
// on, it keeps to a chain, with wide tails.
type Ladder struct {
	// moves[k][i][d] is the chance that a cost at place i of look k moves by d - farthest places.
	moves [][][]float64
	// start is the chance of each place at the first look.
	start []float64
	chain *Chain
}

// NewLadder makes the ladder of warped curves over so many looks.
func NewLadder(curves [][]float64, looks int, chain *Chain) *Ladder {
	l := &Ladder{moves: make([][][]float64, max(0, looks-1)), chain: chain, start: make([]float64, rungsOf)}
	l.begin(curves)
	weights := make([]float64, width+1)
	for i := range weights {
		x := float64(i) * apart / near
		weights[i] = math.Exp(-x * x / 2)
	}
	var before [][]float64
	for k := range l.moves {
		seen := counted(curves, k)
		l.moves[k] = make([][]float64, rungsOf)
		own := make([][]float64, rungsOf)
		for i := range own {
			own[i] = make([]float64, 2*farthest+1)
			for j := max(0, i-width); j <= min(rungsOf-1, i+width); j++ {
				weight := weights[max(i-j, j-i)]
				for d, n := range seen[j] {
					own[i][d] += weight * n
				}
			}
			row := suppose(chain.steps[k], place(i))
			for d := range row {
				row[d] = supposed*row[d] + own[i][d]
				if before != nil {
					row[d] += borrowed * before[i][d]
				}
			}
			l.moves[k][i] = whole(row)
		}
		before = own
	}
	return l
}

// begin learns where curves begin.
func (l *Ladder) begin(curves [][]float64) {
	sd := math.Sqrt(l.chain.startVar)
	for i := range l.start {
		l.start[i] = math.Exp(-math.Abs(place(i)-l.chain.startMean) / sd)
	}
	l.start = whole(l.start)
	for i := range l.start {
		l.start[i] *= supposed
	}
	for _, y := range curves {
		if len(y) > 0 && !math.IsNaN(y[0]) {
			i, f := rung(y[0])
			l.start[i] += 1 - f
			l.start[i+1] += f
		}
	}
	l.start = whole(l.start)
}

// counted are the moves of curves from a look to the next, by where they were; nil where none was.
func counted(curves [][]float64, k int) [][]float64 {
	seen := make([][]float64, rungsOf)
	for _, y := range curves {
		if k+1 >= len(y) || math.IsNaN(y[k]) || math.IsNaN(y[k+1]) {
			continue
		}
		move := min(max((y[k+1]-y[k])/apart, -farthest), farthest-1e-9) + farthest
		d := int(move)
		f := move - float64(d)
		i, g := rung(y[k])
		for _, at := range [2]struct {
			i int
			w float64
		}{{i, 1 - g}, {i + 1, g}} {
			if seen[at.i] == nil {
				seen[at.i] = make([]float64, 2*farthest+1)
			}
			seen[at.i][d] += at.w * (1 - f)
			seen[at.i][d+1] += at.w * f
		}
	}
	return seen
}

// suppose is what a transition says of the moves from a place, with wide tails.
func suppose(t transition, z float64) []float64 {
	x := vector{1, z, 0}
	middle := dot(t.weights, x)
	wide := math.Sqrt(t.noise*(1+quadratic(t.cov, x))) + apart/2
	row := make([]float64, 2*farthest+1)
	m := min(max(middle/apart+farthest, 0), 2*farthest)
	low, fall := int(m), math.Exp(-apart/wide)
	row[low] = math.Exp(-(m - float64(low)) * apart / wide)
	for d := low - 1; d >= 0; d-- {
		row[d] = row[d+1] * fall
	}
	for d := low + 1; d < len(row); d++ {
		row[d] = row[d-1] * fall
		if d == low+1 {
			row[d] = math.Exp(-(float64(d) - m) * apart / wide)
		}
	}
	return whole(row)
}

func whole(row []float64) []float64 {
	sum := 0.0
	for _, v := range row {
		sum += v
	}
	for i := range row {
		row[i] /= sum
	}
	return row
}

func place(i int) float64 { return lowest + float64(i)*apart }

// rung is the rung below a place, and how much of the way to the next one it lies.
func rung(z float64) (i int, f float64) {
	x := min(max((z-lowest)/apart, 0), rungsOf-1-1e-9)
	return int(x), x - math.Floor(x)
}

// A Hit holds the chances to get below a place by a look.
type Hit struct {
	below  float64
	to     int
	ladder *Ladder
	// from[k][i] is the chance of a curve at place i of look k.
	from [][]float64
}

// Hits are the chances to be below a place at one of the looks after the curve's newest, up to look to.
func (l *Ladder) Hits(below float64, to int) *Hit {
	h := &Hit{below: below, to: to, ladder: l, from: make([][]float64, to+1)}
	h.from[to] = make([]float64, rungsOf)
	// arrives[m] is the chance at rung m - farthest of the look after.
	arrives := make([]float64, rungsOf+2*farthest)
	for k := to - 1; k >= 0; k-- {
		h.from[k] = make([]float64, rungsOf)
		for m := range arrives {
			arrives[m] = h.arrive(k+1, place(m-farthest))
		}
		for i := range rungsOf {
			sum := 0.0
			for d, p := range l.moves[k][i] {
				sum += p * arrives[i+d]
			}
			h.from[k][i] = sum
		}
	}
	return h
}

// arrive is the chance once a curve comes to a place about z at a look.
func (h *Hit) arrive(k int, z float64) float64 {
	now := h.now(z)
	return now + (1-now)*h.at(k, z)
}

// now is the chance that a curve about a place is below the goal there.
func (h *Hit) now(z float64) float64 { return min(max((h.below-z)/apart+0.5, 0), 1) }

func (h *Hit) at(k int, z float64) float64 {
	i, f := rung(z)
	return h.from[k][i]*(1-f) + h.from[k][i+1]*f
}

// Chance is that of a curve that stands at a place at a look, or of one not begun if look is below 0.
func (h *Hit) Chance(look int, z float64) float64 {
	switch {
	case look >= h.to:
		return 0
	case look >= 0:
		return h.at(look, z)
	}
	sum := 0.0
	for i, p := range h.ladder.start {
		sum += p * h.arrive(0, place(i))
	}
	return sum
}
