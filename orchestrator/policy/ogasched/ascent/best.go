package ascent

import "math"

// Best searches, in a number of steps, for the stationary decision with the highest reward over a horizon in which each
// port had as many jobs as arrivals says. It returns the best decision that it found, the decision's reward, and an
// upper bound for the reward of any decision.
//
// The bound is Lagrangian: the dominant overhead of a port is the largest mean of its kinds' overheads, so with any
// fixed weights of the mean the reward is at least the true one, and the best decision then follows separately for each
// kind on each instance. The weights are how often each kind dominated in the second half of the steps.
func (g *Graph) Best(arrivals []float64, steps int) (best Decision, reward, bound float64) {
	heaviest := 0.0
	for _, n := range arrivals {
		heaviest = max(heaviest, n)
	}
	if heaviest == 0 {
		return g.Zero(), 0, 0
	}
	scaled := make([]float64, len(arrivals))
	for l, n := range arrivals {
		scaled[l] = n / heaviest
	}
	a := NewLearner(g, Rates{})
	weights := make([]float64, len(a.sums))
	mean, count := g.Zero(), 0.0
	diameter, gradient := g.sizes()
	best = g.Zero()
	try := func(y Decision) {
		if got := g.Reward(arrivals, y); got > reward {
			reward = got
			copy(best, y)
		}
	}
	for s := range steps {
		g.climb(a.Y, scaled, diameter/max(gradient, 1e-12)/math.Sqrt(float64(s+1)), a)
		if s < steps/2 {
			continue
		}
		g.totals(a.Y, a.sums)
		g.dominant(a.sums, a.kind, a.overhead)
		for l, k := range a.kind {
			weights[l*len(g.Beta)+k]++
		}
		count++
		for i, x := range a.Y {
			mean[i] += (x - mean[i]) / count
		}
		if s%64 == 0 {
			try(a.Y)
			try(mean)
		}
	}
	try(mean)
	for i := range weights {
		weights[i] /= max(count, 1)
	}
	return best, reward, g.relaxed(arrivals, weights)
}

// relaxed returns the highest reward if the overhead of each port were the weighted mean of its kinds'.
func (g *Graph) relaxed(arrivals, weights []float64) float64 {
	kinds, total := len(g.Beta), 0.0
	for r, ports := range g.Ports {
		for k, limit := range g.Capacity[r] {
			p := pair{u: g.Utility[r][k], alpha: g.Alpha[r][k], most: g.mostOf(r, k)}
			for _, l := range ports {
				p.n = append(p.n, arrivals[l])
				p.cost = append(p.cost, weights[l*kinds+k]*g.Beta[k])
			}
			total += p.bound(limit)
		}
	}
	return total
}

// pair is a kind on an instance. Ports with weights n want up to most each, at a unit cost.
type pair struct {
	u             Utility
	alpha         float64
	n, cost, most []float64
}

// bound is the dual value of sharing the limit at the best unit price: no sharing is worth more.
func (p *pair) bound(limit float64) float64 {
	low, high := 0.0, 0.0
	for _, n := range p.n {
		high = max(high, n*p.u.Slope(p.alpha, 0))
	}
	for range 60 {
		price := low + (high-low)/2
		if _, sum := p.dual(price, limit); sum > limit {
			low = price
		} else {
			high = price
		}
	}
	at, _ := p.dual(high, limit)
	below, _ := p.dual(low, limit)
	free, _ := p.dual(0, limit)
	return min(at, below, free)
}

// dual returns the worth, including the price of the limit, of the amounts that ports would take at a price, and their
// sum.
func (p *pair) dual(price, limit float64) (value, sum float64) {
	value = price * limit
	for i, n := range p.n {
		if n == 0 {
			continue
		}
		y := p.u.atSlope(p.alpha, p.cost[i]+price/n, p.most[i])
		value += n*(p.u.Gain(p.alpha, y)-p.cost[i]*y) - price*y
		sum += y
	}
	return value, sum
}
