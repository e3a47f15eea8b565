package freezethaw

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/dustin/go-humanize/english"

	"github.com/outbid-dev/outbid/orchestrator/tuner"
)

// choose returns the configuration of the next new trial and the reason, or nil if it is to be drawn. The choice
// follows from the seed, the trial's number and the costs of the other trials.
func (z *freeze) choose() (chosen tuner.Config, x []float64, why string) {
	v := z.currentView()
	rng := rand.New(rand.NewPCG(z.Configs.Root, poolStream+uint64(len(z.Trials))))
	if !z.modelled() || v.seen < leastSeen || len(z.Trials) < len(z.Configs.Points) || rng.Float64() > chosenShare*z.Beliefs.Trust() {
		return nil, nil, ""
	}
	tried := z.tried(z.live)
	most := -1.0
	for _, u := range z.pool(rng) {
		config := z.Configs.Space.At(u)
		if !z.Configs.Space.Allowed(config) {
			continue
		}
		at := z.Configs.Space.Coordinates(config, nil, math.NaN())
		if tried[spot(at)] {
			continue
		}
		if chance := v.model.Promise(at); chance > most {
			chosen, x, most = config, at, chance
		}
	}
	return chosen, x, fmt.Sprintf("of %s the one with the best chance, %.2g, to end among the best", english.Plural(drawnPool+nearPool, "draw", ""), most)
}

// spot returns a key for coordinates that is robust against rounding in the conversion from values and back.
func spot(x []float64) string { return fmt.Sprintf("%.6f", x) }

// pool returns the candidates for a new configuration.
func (z *freeze) pool(rng *rand.Rand) [][]float64 {
	var pool [][]float64
	dims := z.Configs.Space.Dims()
	for range drawnPool {
		u := make([]float64, dims)
		for i := range u {
			u[i] = rng.Float64()
		}
		pool = append(pool, u)
	}
	best := z.leaders(z.live)
	for i := 0; i < nearPool && len(best) > 0; i++ {
		u := slices.Clone(best[i%len(best)])
		for j := range u {
			switch {
			case math.IsNaN(u[j]) || rng.Float64() < 0.1:
				u[j] = rng.Float64()
			case rng.Float64() < 0.5:
				u[j] = min(max(u[j]+0.1*rng.NormFloat64(), 0), 1)
			}
		}
		pool = append(pool, u)
	}
	return pool
}
