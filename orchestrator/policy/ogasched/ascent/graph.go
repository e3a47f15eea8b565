// Package ascent is the algorithm of OGASched (Zhao et al., "Scheduling Multi-Server Jobs with Sublinear Regrets via
// Online Learning"). Jobs of some types arrive in each slot, by no known law. The share of each type in each instance
// is learnt by a step up the gradient of the last slot's reward, followed by a projection onto the closest feasible
// decision.
//
// A port is a type of job, an instance a machine, a kind a type of resource. A decision is how much of each kind of
// each instance is kept for each port. The reward of a slot is, summed over the ports from which a job came,
//
//	sum over kinds and instances of f(y) - max over kinds of beta * sum over instances of y
//
// which is the gain of computing in parallel minus the dominant overhead of communication.
package ascent

import (
	"errors"
	"fmt"
)

// Graph defines how much of each instance each port may have.
type Graph struct {
	// Request of each port of each kind: the most that it may get from one instance.
	Request [][]float64
	// Capacity of each instance of each kind.
	Capacity [][]float64
	// Ports that may use each instance, ascending.
	Ports [][]int
	// Alpha and Utility of each kind on each instance.
	Alpha   [][]float64
	Utility [][]Utility
	// Beta of each kind: the communication cost of one unit.
	Beta []float64

	// first is the index in a decision where an instance's entries begin, and size the length of a decision.
	first []int
	size  int
	// most is the request of each entry of a decision.
	most []float64
}

// Ready checks the graph and prepares it for use. Call it once, before any other method.
func (g *Graph) Ready() error {
	kinds := len(g.Beta)
	if len(g.Capacity) != len(g.Ports) || len(g.Capacity) != len(g.Alpha) || len(g.Capacity) != len(g.Utility) {
		return errors.New("ascent: capacity, ports, alpha and utility must have the same number of instances")
	}
	for l, request := range g.Request {
		if len(request) != kinds {
			return fmt.Errorf("ascent: port %d: want a request for each kind, got %d for %d", l, len(request), kinds)
		}
	}
	g.first, g.size, g.most = make([]int, len(g.Capacity)), 0, nil
	for r, ports := range g.Ports {
		if len(g.Capacity[r]) != kinds || len(g.Alpha[r]) != kinds || len(g.Utility[r]) != kinds {
			return fmt.Errorf("ascent: instance %d: want %d kinds", r, kinds)
		}
		g.first[r] = g.size
		g.size += kinds * len(ports)
		for k := range kinds {
			for i, l := range ports {
				if l < 0 || l >= len(g.Request) || i > 0 && l <= ports[i-1] {
					return fmt.Errorf("ascent: instance %d: ports %v must be ascending and below %d", r, ports, len(g.Request))
				}
				g.most = append(g.most, g.Request[l][k])
			}
		}
	}
	return nil
}

// Decision is how much of each kind of each instance is kept for each port; Of reads it. All decisions of a graph have
// the same length.
type Decision []float64

// Zero returns the decision in which every port has nothing.
func (g *Graph) Zero() Decision { return make(Decision, g.size) }

// Of returns the part of a decision for a kind on an instance: an entry for each of the instance's Ports, in order.
func (g *Graph) Of(y Decision, instance, kind int) []float64 {
	n := len(g.Ports[instance])
	at := g.first[instance] + kind*n
	return y[at : at+n]
}

// mostOf returns the request of each entry of Of.
func (g *Graph) mostOf(instance, kind int) []float64 { return g.Of(g.most, instance, kind) }

// Project replaces a decision by the closest feasible one. Each kind on each instance is projected separately.
func (g *Graph) Project(y Decision) {
	for r := range g.Capacity {
		for k, limit := range g.Capacity[r] {
			Project(g.Of(y, r, k), g.mostOf(r, k), limit)
		}
	}
}

// totals computes, for each port and kind, the sum of a decision over all instances.
func (g *Graph) totals(y Decision, sums []float64) {
	clear(sums)
	kinds := len(g.Beta)
	for r, ports := range g.Ports {
		for k := range kinds {
			for i, x := range g.Of(y, r, k) {
				sums[ports[i]*kinds+k] += x
			}
		}
	}
}

// dominant computes, for each port, the kind with the largest overhead, the first among equals, and that overhead.
func (g *Graph) dominant(sums []float64, kind []int, overhead []float64) {
	kinds := len(g.Beta)
	for l := range g.Request {
		kind[l], overhead[l] = 0, 0
		for k, beta := range g.Beta {
			if cost := beta * sums[l*kinds+k]; cost > overhead[l] {
				kind[l], overhead[l] = k, cost
			}
		}
	}
}

// Reward returns the reward of a decision. arrivals is the number of jobs from each port: 0 or 1 in a slot, or the
// total over a horizon.
func (g *Graph) Reward(arrivals []float64, y Decision) float64 {
	kinds := len(g.Beta)
	sums := make([]float64, len(g.Request)*kinds)
	kind, overhead := make([]int, len(g.Request)), make([]float64, len(g.Request))
	g.totals(y, sums)
	g.dominant(sums, kind, overhead)
	reward := 0.0
	for l, n := range arrivals {
		reward -= n * overhead[l]
	}
	for r, ports := range g.Ports {
		for k := range kinds {
			u, alpha := g.Utility[r][k], g.Alpha[r][k]
			for i, x := range g.Of(y, r, k) {
				if n := arrivals[ports[i]]; n != 0 && x > 0 {
					reward += n * u.Gain(alpha, x)
				}
			}
		}
	}
	return reward
}

// Several returns the graph in which up to most[l] jobs of a port may come in one slot, with a port for each of them
// (section 3.4). from is the port of g for each port of the new graph; those of one port are consecutive.
func (g *Graph) Several(most []int) (several *Graph, from []int, err error) {
	if len(most) != len(g.Request) {
		return nil, nil, fmt.Errorf("ascent: %d numbers of arrivals for %d ports", len(most), len(g.Request))
	}
	several = &Graph{Capacity: g.Capacity, Alpha: g.Alpha, Utility: g.Utility, Beta: g.Beta, Ports: make([][]int, len(g.Ports))}
	begin := make([]int, len(most))
	for l, n := range most {
		begin[l] = len(from)
		for range n {
			from = append(from, l)
			several.Request = append(several.Request, g.Request[l])
		}
	}
	for r, ports := range g.Ports {
		for _, l := range ports {
			for i := range most[l] {
				several.Ports[r] = append(several.Ports[r], begin[l]+i)
			}
		}
	}
	return several, from, several.Ready()
}

// Arrivals returns the arrivals at the ports of Several, if count[l] jobs came from port l of the original graph.
func Arrivals(from, count []int) []float64 {
	x := make([]float64, len(from))
	left := append([]int(nil), count...)
	for i, l := range from {
		if left[l] > 0 {
			left[l]--
			x[i] = 1
		}
	}
	return x
}
