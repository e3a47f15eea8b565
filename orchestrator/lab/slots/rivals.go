package slots

import (
	"cmp"
	"math"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/policy/ogasched/ascent"
)

// rival divides a cluster among the ports from which jobs came, independently in each slot.
type rival func(g *ascent.Graph, arrivals []float64, y ascent.Decision)

// drf serves ports in ascending order of their dominant share: the largest fraction that one request is of the total of
// a kind on the port's instances. Each takes its request, or the rest, from every instance.
func drf(g *ascent.Graph) rival {
	kinds := len(g.Beta)
	all := make([][]float64, len(g.Request))
	for l := range all {
		all[l] = make([]float64, kinds)
	}
	for r, ports := range g.Ports {
		for _, l := range ports {
			for k, c := range g.Capacity[r] {
				all[l][k] += c
			}
		}
	}
	order, share := make([]int, len(all)), make([]float64, len(all))
	for l := range all {
		order[l] = l
		for k, c := range all[l] {
			share[l] = max(share[l], g.Request[l][k]/max(c, 1e-9))
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(share[a], share[b]) })
	rank := make([]int, len(order))
	for i, l := range order {
		rank[l] = i
	}
	served := make([][]int, len(g.Ports)) // the places of an instance's ports, in that order
	for r, ports := range g.Ports {
		for i := range ports {
			served[r] = append(served[r], i)
		}
		slices.SortFunc(served[r], func(a, b int) int { return cmp.Compare(rank[ports[a]], rank[ports[b]]) })
	}
	return func(g *ascent.Graph, arrivals []float64, y ascent.Decision) {
		for r, ports := range g.Ports {
			for k, left := range g.Capacity[r] {
				part := g.Of(y, r, k)
				for _, i := range served[r] {
					part[i] = 0
					if l := ports[i]; arrivals[l] > 0 {
						part[i] = min(left, g.Request[l][k])
						left -= part[i]
					}
				}
			}
		}
	}
}

// fairness divides each kind on each instance in proportion to the requests of the ports from which jobs came, at most
// the request each. The paper divides by the requests of all ports, which leaves the share of ports without a job idle.
func fairness(g *ascent.Graph, arrivals []float64, y ascent.Decision) {
	for r, ports := range g.Ports {
		for k, capacity := range g.Capacity[r] {
			sum := 0.0
			for _, l := range ports {
				sum += arrivals[l] * g.Request[l][k]
			}
			for i, l := range ports {
				request := arrivals[l] * g.Request[l][k]
				g.Of(y, r, k)[i] = 0
				if request > 0 {
					g.Of(y, r, k)[i] = min(request, capacity*request/sum)
				}
			}
		}
	}
}

// scored has jobs take turns. At its turn a job takes its request, or the rest, from the instance with the highest
// utilisation times sign among those that it has not used: sign is 1 for BinPacking, -1 for Spreading.
func scored(g *ascent.Graph, sign float64) rival {
	own := make([][]int, len(g.Request)) // the instances of each port
	for r, ports := range g.Ports {
		for _, l := range ports {
			own[l] = append(own[l], r)
		}
	}
	return func(g *ascent.Graph, arrivals []float64, y ascent.Decision) {
		clear(y)
		used := make([]float64, len(g.Ports))
		rest := make([][]int, len(own))
		for l := range own {
			if arrivals[l] > 0 {
				rest[l] = append(rest[l], own[l]...)
			}
		}
		for busy := true; busy; {
			busy = false
			for l := range rest {
				if len(rest[l]) == 0 {
					continue
				}
				busy = true
				best, high := 0, math.Inf(-1)
				for i, r := range rest[l] {
					if score := sign * used[r]; score > high {
						best, high = i, score
					}
				}
				r := rest[l][best]
				rest[l] = slices.Delete(rest[l], best, best+1)
				used[r] = giveRequest(g, y, r, l)
			}
		}
	}
}

// giveRequest gives a port its request of each kind of an instance, or the rest, and returns the instance's new
// utilisation.
func giveRequest(g *ascent.Graph, y ascent.Decision, r, l int) float64 {
	at, utilisation, kinds := slices.Index(g.Ports[r], l), 0.0, 0
	for k, capacity := range g.Capacity[r] {
		if capacity == 0 {
			continue
		}
		part, sum := g.Of(y, r, k), 0.0
		for _, x := range part {
			sum += x
		}
		part[at] = max(0, min(g.Request[l][k], capacity-sum))
		utilisation += (sum + part[at]) / capacity
		kinds++
	}
	return utilisation / float64(max(1, kinds))
}
