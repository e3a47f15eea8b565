package population

import "math"

// features of a transition: one, where the cost stands, and how it moved since the look before.
const features = 3

type vector [features]float64

// The prior of the first transition, in warped costs, and for how many curves each part of a prior counts.
const (
	firstFall  = -0.15
	firstLean  = 0
	firstGoOn  = 0.3
	firstNoise = 0.3
	fallCounts = 2
	leanCounts = 3
	goOnCounts = 2
	noiseCount = 4
	// fade is how much of the fall from one look to the next is expected of the look after, where nothing is known.
	fade = 0.9
)

// A transition says how costs change from a look to the next.
type transition struct {
	weights vector
	// cov is the covariance of the weights, in units of the noise.
	cov [features][features]float64
	// noise is the variance of the change that the weights do not explain, and counts the curves that it rests on.
	noise, counts float64
}

// A Chain says how the costs of a sweep's curves change from look to look.
type Chain struct {
	// start is the mean and the variance of costs at the first look.
	startMean, startVar float64
	steps               []transition
}

// Fit fits a chain to curves over so many looks. curves[i][k] is the warped cost of curve i at look k, NaN where it
// was not measured; a curve may be shorter than there are looks.
func Fit(curves [][]float64, looks int) *Chain {
	c := &Chain{steps: make([]transition, max(0, looks-1))}
	c.begin(curves)
	before := vector{firstFall, firstLean, firstGoOn}
	noise := float64(firstNoise * firstNoise)
	for k := range c.steps {
		c.steps[k] = regress(curves, k, before, noise)
		before, noise = c.steps[k].weights, c.steps[k].noise
		before[0] *= fade
	}
	return c
}

// begin learns how curves begin. Those that have no cost at the first look are left out.
func (c *Chain) begin(curves [][]float64) {
	const counts = 2
	n, sum := float64(counts), float64(counts)
	for _, y := range curves {
		if len(y) > 0 && !math.IsNaN(y[0]) {
			n, sum = n+1, sum+y[0]
		}
	}
	c.startMean = sum / n
	squares := float64(counts)
	for _, y := range curves {
		if len(y) > 0 && !math.IsNaN(y[0]) {
			squares += (y[0] - c.startMean) * (y[0] - c.startMean)
		}
	}
	c.startVar = squares / n
}

// seen are the features at a look of a curve that was measured there, and whether it was.
func seen(y []float64, k int) (vector, bool) {
	if k >= len(y) || math.IsNaN(y[k]) {
		return vector{}, false
	}
	moved := 0.0
	if k > 0 && !math.IsNaN(y[k-1]) {
		moved = y[k] - y[k-1]
	}
	return vector{1, y[k], moved}, true
}

// regress is the transition from look k to the next.
func regress(curves [][]float64, k int, prior vector, noise float64) transition {
	gram := [features][features]float64{{fallCounts, 0, 0}, {0, leanCounts, 0}, {0, 0, goOnCounts}}
	right := vector{gram[0][0] * prior[0], gram[1][1] * prior[1], gram[2][2] * prior[2]}
	n, squares := float64(noiseCount), noiseCount*noise
	for i, w := range prior {
		squares += gram[i][i] * w * w
	}
	for _, y := range curves {
		x, ok := seen(y, k)
		if !ok || k+1 >= len(y) || math.IsNaN(y[k+1]) {
			continue
		}
		change, weight := y[k+1]-y[k], weigh(y[k])
		for i := range x {
			right[i] += weight * x[i] * change
			for j := range x {
				gram[i][j] += weight * x[i] * x[j]
			}
		}
		n += weight
		squares += weight * change * change
	}
	t := transition{cov: inverse(gram), counts: n}
	for i := range right {
		for j := range right {
			t.weights[i] += t.cov[i][j] * right[j]
		}
	}
	for i := range right {
		squares -= t.weights[i] * right[i]
	}
	t.noise = max(squares/n, minNoise)
	return t
}

// minNoise is the least variance of a change.
const minNoise = 1e-4

// weigh is for how much a curve counts: bad ones go their own ways.
func weigh(z float64) float64 { return 1 / (1 + math.Exp(2*(z-1))) }

// inverse of a positive matrix of three rows.
func inverse(m [features][features]float64) (out [features][features]float64) {
	minor := func(i, j int) float64 {
		a, b, c, d := (i+1)%3, (i+2)%3, (j+1)%3, (j+2)%3
		return m[a][c]*m[b][d] - m[a][d]*m[b][c]
	}
	det := m[0][0]*minor(0, 0) + m[0][1]*minor(0, 1) + m[0][2]*minor(0, 2)
	for i := range out {
		for j := range out {
			out[j][i] = minor(i, j) / det
		}
	}
	return out
}

// A Path is what is thought of a curve's costs at the looks: mean and variance, and their covariance with the last one.
type Path struct {
	// From is the first look that is not known; Mean, Var and WithLast are of all looks from there on.
	From                int
	Mean, Var, WithLast []float64
	// plain is the same where nothing is known of the configuration, and newest the newest cost.
	plainMean, plainVar []float64
	newest              float64
}

// Last is the place of the last look in the path.
func (p *Path) Last() int { return len(p.Mean) - 1 }

// After forecasts a curve beyond its newest cost; a curve without any is one that is not begun.
func (c *Chain) After(y []float64) *Path {
	k := len(y) - 1
	for k >= 0 && math.IsNaN(y[k]) {
		k--
	}
	looks := len(c.steps) + 1
	p := &Path{From: k + 1}
	n := looks - p.From
	p.Mean, p.Var, p.WithLast = make([]float64, n), make([]float64, n), make([]float64, n)
	if n == 0 {
		return p
	}
	// rows[i] is the covariance of look From+i with those before it and itself.
	rows := make([][]float64, n)
	now, before := 0.0, 0.0
	first := 0
	if k >= 0 {
		x, _ := seen(y, k)
		now, before = x[1], x[1]-x[2]
		p.newest = now
	} else {
		p.Mean[0], p.Var[0] = c.startMean, c.startVar
		rows[0] = []float64{c.startVar}
		now, before, first = c.startMean, c.startMean, 1
	}
	for i := first; i < n; i++ {
		t := &c.steps[p.From+i-1]
		x := vector{1, now, now - before}
		if p.From+i == 1 {
			x[2] = 0
		}
		next := now + dot(t.weights, x)
		rows[i] = t.extend(rows, i, x, p.From+i == 1)
		p.Mean[i], p.Var[i] = next, rows[i][i]
		now, before = next, now
	}
	for i := range rows {
		p.WithLast[i] = rows[n-1][i]
	}
	p.plainMean, p.plainVar = p.Mean, p.Var
	return p
}

// extend is the covariance of the next look with those before it and itself: y' = y + w1 y + w2 (y - before)
// + chance; at the first look nothing has moved yet.
func (t *transition) extend(rows [][]float64, i int, x vector, first bool) []float64 {
	a, b := 1+t.weights[1]+t.weights[2], -t.weights[2]
	if first {
		a, b = 1+t.weights[1], 0
	}
	at := func(r, c int) float64 {
		switch {
		case r < 0 || c < 0:
			return 0
		case r < c:
			return rows[c][r]
		default:
			return rows[r][c]
		}
	}
	row := make([]float64, i+1)
	for j := range i {
		row[j] = a*at(i-1, j) + b*at(i-2, j)
	}
	own := t.noise * (1 + quadratic(t.cov, x))
	row[i] = a*a*at(i-1, i-1) + 2*a*b*at(i-1, i-2) + b*b*at(i-2, i-2) + own
	return row
}

func dot(a, b vector) float64 { return a[0]*b[0] + a[1]*b[1] + a[2]*b[2] }

func quadratic(m [features][features]float64, x vector) float64 {
	sum := 0.0
	for i := range x {
		for j := range x {
			sum += x[i] * m[i][j] * x[j]
		}
	}
	return sum
}
