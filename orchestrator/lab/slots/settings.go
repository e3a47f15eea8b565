// Package slots is the model of OGASched's paper (sections 2 and 4): in each slot jobs come from some ports, and hold
// what a policy gives them of each instance for that slot alone. It draws clusters by the paper's settings, runs
// OGASched and the paper's rivals on them, and measures reward and regret.
package slots

import (
	"math/rand/v2"

	"github.com/outbid-dev/outbid/orchestrator/policy/ogasched/ascent"
)

// Settings are those of table II, and parameters that the paper takes from traces.
type Settings struct {
	Ports, Instances, Horizon int
	// Chance that a job comes from a port in a slot.
	Chance float64
	// Density is the mean number of ports of an instance.
	Density float64
	// Contention multiplies the requests.
	Contention float64
	// Alpha and Beta are drawn uniformly from these ranges.
	Alpha, Beta [2]float64
	// Utilities to draw from for each kind on each instance.
	Utilities []ascent.Utility
	// Rates of OGASched's steps.
	Rates ascent.Rates
}

// Default returns table II, with 8,000 slots as in section 4.1, all four utilities, and three ports per instance.
func Default() Settings {
	return Settings{
		Ports: 10, Instances: 128, Horizon: 8000, Chance: 0.7, Density: 3, Contention: 10,
		Alpha: [2]float64{1, 1.5}, Beta: [2]float64{0.3, 0.5}, Rates: ascent.Rates{First: 25, Decay: 0.9999},
		Utilities: []ascent.Utility{ascent.Linear, ascent.Log, ascent.Reciprocal, ascent.Poly},
	}
}

// kind is a type of resource: the possible capacities of an instance, and the range of a job's request before it is
// multiplied by the contention.
type kind struct {
	capacity    []float64
	least, most float64
}

// kinds returns CPUs, memory in units of 8 GB, GPUs, NPUs, TPUs and FPGAs. Alibaba's machines have 64 or 96 CPUs and 0,
// 2 or 8 GPUs; the other accelerators are similar.
func kinds() []kind {
	return []kind{
		{[]float64{64, 96, 128}, 1, 8},
		{[]float64{32, 48, 64}, 1, 6},
		{[]float64{0, 2, 8}, 0.1, 1},
		{[]float64{0, 4, 8}, 0.1, 1},
		{[]float64{0, 4}, 0.1, 1},
		{[]float64{0, 2}, 0.1, 0.5},
	}
}

// Draw draws a cluster. The same seed gives the same one.
func (s Settings) Draw(seed uint64) (*ascent.Graph, error) {
	rng := rand.New(rand.NewPCG(seed, 1))
	even := func(least, most float64) float64 { return least + (most-least)*rng.Float64() }
	g := &ascent.Graph{}
	all := kinds()
	for range all {
		g.Beta = append(g.Beta, even(s.Beta[0], s.Beta[1]))
	}
	for range s.Ports {
		var request []float64
		for _, k := range all {
			request = append(request, s.Contention*even(k.least, k.most))
		}
		g.Request = append(g.Request, request)
	}
	for range s.Instances {
		var capacity, alpha []float64
		var utility []ascent.Utility
		for _, k := range all {
			capacity = append(capacity, k.capacity[rng.IntN(len(k.capacity))])
			alpha = append(alpha, even(s.Alpha[0], s.Alpha[1]))
			utility = append(utility, s.Utilities[rng.IntN(len(s.Utilities))])
		}
		var ports []int
		for l := range s.Ports {
			if rng.Float64() < s.Density/float64(s.Ports) {
				ports = append(ports, l)
			}
		}
		if len(ports) == 0 {
			ports = []int{rng.IntN(s.Ports)}
		}
		g.Capacity, g.Alpha = append(g.Capacity, capacity), append(g.Alpha, alpha)
		g.Utility, g.Ports = append(g.Utility, utility), append(g.Ports, ports)
	}
	return g, g.Ready()
}
