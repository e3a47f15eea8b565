package slots

import (
	"fmt"
	"math/rand/v2"

	"github.com/outbid-dev/outbid/orchestrator/policy/ogasched/ascent"
)

// Names lists the policies that Run knows, OGASched first.
func Names() []string {
	return []string{"OGASched", "OGASched, steps by theory", "DRF", "Fairness", "BinPacking", "Spreading"}
}

// Result is a policy's result over a horizon.
type Result struct {
	// Cumulative reward, and Average per slot.
	Cumulative, Average float64
	// Regret at some slots.
	Regret []Regret
}

// Regret is the regret against the best stationary decision for the jobs until a slot: at least Least, relative to the
// best decision found, and at most Most, relative to an upper bound.
type Regret struct {
	Slot        int
	Least, Most float64
	// Theorem is the theorem's bound for steps by theory.
	Theorem float64
}

// Run runs a policy on the cluster and the arrivals of a seed, and measures regret after the slots in regretAt.
func Run(s Settings, name string, seed uint64, regretAt ...int) (Result, error) {
	g, err := s.Draw(seed)
	if err != nil {
		return Result{}, err
	}
	decide, err := policyOf(s, g, name)
	if err != nil {
		return Result{}, err
	}
	var result Result
	rng := rand.New(rand.NewPCG(seed, 2))
	arrivals, count := make([]float64, s.Ports), make([]float64, s.Ports)
	for slot := 1; slot <= s.Horizon; slot++ {
		for l := range arrivals {
			arrivals[l] = 0
			if rng.Float64() < s.Chance {
				arrivals[l] = 1
				count[l]++
			}
		}
		result.Cumulative += decide(arrivals)
		for _, at := range regretAt {
			if at == slot {
				_, found, bound := g.Best(count, bestSteps)
				result.Regret = append(result.Regret, Regret{
					Slot: slot, Least: found - result.Cumulative, Most: bound - result.Cumulative, Theorem: g.Bound(slot),
				})
			}
		}
	}
	result.Average = result.Cumulative / float64(max(1, s.Horizon))
	return result, nil
}

// bestSteps is the number of steps of the search for the best stationary decision.
const bestSteps = 4000

// policyOf returns a function that decides a slot and returns its reward.
func policyOf(s Settings, g *ascent.Graph, name string) (func(arrivals []float64) float64, error) {
	learn := func(rates ascent.Rates) func([]float64) float64 {
		a := ascent.NewLearner(g, rates)
		return func(arrivals []float64) float64 {
			reward := g.Reward(arrivals, a.Decision())
			a.Learn(arrivals)
			return reward
		}
	}
	divide := func(by rival) func([]float64) float64 {
		y := g.Zero()
		return func(arrivals []float64) float64 {
			by(g, arrivals, y)
			return g.Reward(arrivals, y)
		}
	}
	switch name {
	case "OGASched":
		return learn(s.Rates), nil
	case "OGASched, steps by theory":
		return learn(g.Theory(s.Horizon)), nil
	case "DRF":
		return divide(drf(g)), nil
	case "Fairness":
		return divide(fairness), nil
	case "BinPacking":
		return divide(scored(g, 1)), nil
	case "Spreading":
		return divide(scored(g, -1)), nil
	}
	return nil, fmt.Errorf("slots: unknown policy %q", name)
}
