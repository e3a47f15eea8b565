package space

import (
	"math/rand/v2"
)

// maxPerturb is how often Perturb tries to meet the constraints.
const maxPerturb = 100

// Perturb is the explore step of population based training (Jaderberg et al. 2017, section 3): with chance resample
// a parameter is drawn anew; otherwise a number is multiplied by one of the factors, clamped to its range and
// rounded to its steps (an integer or quantised number moves at least one step), and a choice moves to a
// neighbouring value. Constants stay. A parameter that is missing, or was outside the space, is drawn anew; one
// whose condition no longer holds goes away. If no try in 100 meets the constraints, the configuration comes back as
// it was.
func (s *Space) Perturb(cfg Config, rng *rand.Rand, resample float64, factors []float64) Config {
	old := s.values(cfg)
	for range maxPerturb {
		moved := s.build(func(l *leaf) any {
			return s.explore(l, old[s.byPath[l.path]], rng, resample, factors)
		})
		if s.Allowed(moved) {
			return moved
		}
	}
	same, ok := clone(cfg).(map[string]any)
	if !ok {
		return cfg
	}
	return same
}

func (s *Space) explore(l *leaf, v any, rng *rand.Rand, resample float64, factors []float64) any {
	// Both draws are made whatever comes of them, so that one parameter does not shift the randomness of the next.
	anew, u := rng.Float64() < resample, rng.Float64()
	factor := 1.0
	if len(factors) > 0 {
		factor = factors[rng.IntN(len(factors))]
	}
	if _, gone := v.(absent); gone || anew || l.dist.check(v) != "" {
		return l.dist.at(u)
	}
	return l.dist.perturb(v, factor, rng)
}
