package space

import (
	"math/rand/v2"
)

// maxPerturb is the number of tries that Perturb makes to meet the constraints.
const maxPerturb = 100

// Perturb is the explore step of population based training (Jaderberg et al. 2017, section 3). With probability
// resample, a parameter is redrawn. Otherwise a number is multiplied by one of the factors, clamped to its range and
// rounded to its steps (an integer or quantised number moves at least one step), and a choice moves to a neighbouring
// value. Constants do not change. A parameter that is missing, or was outside the space, is redrawn; one whose
// condition no longer holds is removed. If no try in 100 meets the constraints, the configuration is returned
// unchanged.
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
	// Both draws are always made, so that one parameter does not shift the randomness of the next.
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
