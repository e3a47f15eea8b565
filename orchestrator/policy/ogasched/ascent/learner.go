package ascent

import (
	"encoding/json"
	"fmt"
	"math"
)

// Rates is the length of steps: First in the first slot, and Decay times the previous one in each later slot.
type Rates struct {
	First, Decay float64
}

// Learner ascends the gradient slot by slot.
type Learner struct {
	g     *Graph
	rates Rates
	memory
	// Reused in every slot.
	sums, overhead []float64
	kind           []int
}

// memory is a learner's state.
type memory struct {
	// Y is the decision for the next slot, and Rate the length of the step after it.
	Y    Decision
	Rate float64
}

// NewLearner starts with the zero decision.
func NewLearner(g *Graph, rates Rates) *Learner {
	return &Learner{
		g: g, rates: rates, memory: memory{Y: g.Zero(), Rate: rates.First},
		sums: make([]float64, len(g.Request)*len(g.Beta)), overhead: make([]float64, len(g.Request)), kind: make([]int, len(g.Request)),
	}
}

// Decision returns the decision for the next slot. The slice belongs to the learner and changes with Learn.
func (a *Learner) Decision() Decision { return a.Y }

// Learn makes a step up the gradient of the reward of the last slot, where arrivals is 0 or 1 for each port, and
// projects onto the feasible decisions.
func (a *Learner) Learn(arrivals []float64) {
	a.g.climb(a.Y, arrivals, a.Rate, a)
	a.Rate *= a.rates.Decay
}

// climb moves y by rate along the gradient and projects it. Entries that are 0 and not requested stay 0.
func (g *Graph) climb(y Decision, arrivals []float64, rate float64, a *Learner) {
	g.totals(y, a.sums)
	g.dominant(a.sums, a.kind, a.overhead)
	for r, ports := range g.Ports {
		for k, limit := range g.Capacity[r] {
			u, alpha, beta := g.Utility[r][k], g.Alpha[r][k], g.Beta[k]
			part := g.Of(y, r, k)
			moved := false
			for i, l := range ports {
				n := arrivals[l]
				if n == 0 {
					continue
				}
				moved = true
				slope := u.Slope(alpha, part[i])
				if a.kind[l] == k {
					slope -= beta
				}
				part[i] += rate * n * slope
			}
			if moved {
				Project(part, g.mostOf(r, k), limit)
			}
		}
	}
}

// Snapshot returns the learner's state.
func (a *Learner) Snapshot() ([]byte, error) { return json.Marshal(a.memory) }

// Restore continues from a snapshot of a learner of the same graph.
func (a *Learner) Restore(b []byte) error {
	var m memory
	if err := json.Unmarshal(b, &m); err != nil {
		return fmt.Errorf("ascent: snapshot: %w", err)
	}
	if len(m.Y) != a.g.size {
		return fmt.Errorf("ascent: the snapshot has %d entries, the graph %d", len(m.Y), a.g.size)
	}
	a.memory = m
	return nil
}

// Theory returns the constant step length that keeps the regret within Bound (equation 55): the diameter of the
// feasible set over the largest gradient, over the square root of the horizon.
func (g *Graph) Theory(horizon int) Rates {
	diameter, gradient := g.sizes()
	if gradient == 0 {
		return Rates{First: 1, Decay: 1}
	}
	return Rates{First: diameter / (gradient * math.Sqrt(float64(horizon))), Decay: 1}
}

// Bound returns the bound of the regret over a horizon with the steps of Theory (theorem 1).
func (g *Graph) Bound(horizon int) float64 {
	diameter, gradient := g.sizes()
	return diameter * gradient * math.Sqrt(float64(horizon))
}

// sizes returns a bound on the distance of two decisions, sqrt(2 sum of abar*c), and one on the length of a gradient.
func (g *Graph) sizes() (diameter, gradient float64) {
	beta := 0.0
	for _, b := range g.Beta {
		beta = max(beta, b)
	}
	for r, ports := range g.Ports {
		steepest := 0.0
		for k, capacity := range g.Capacity[r] {
			most := 0.0
			for _, l := range ports {
				most = max(most, g.Request[l][k])
			}
			diameter += most * capacity
			steepest = max(steepest, g.Utility[r][k].Slope(g.Alpha[r][k], 0))
		}
		gradient += float64(len(ports)) * (beta*beta + float64(len(g.Beta))*steepest*steepest)
	}
	return math.Sqrt(2 * diameter), math.Sqrt(gradient)
}
