package curvetest

import (
	"math"
	"math/rand/v2"
)

// Families returns the kinds of synthetic curves.
func Families() []string {
	return []string{"power law", "exponential", "hill", "logarithm", "turning", "diverging"}
}

// Made returns a task of synthetic curves of a family, to be minimised. Each curve has its own level, speed and noise.
// Early ranks often, but not always, agree with late ones.
func Made(family string, curves, steps int, seed uint64) Task {
	rng := rand.New(rand.NewPCG(seed, uint64(len(family))))
	t := Task{Set: "made", Name: family}
	for range curves {
		at, noise := drawn(family, float64(steps), rng), 0.02*rng.Float64()
		values, fresh := make([]float64, steps), make([]bool, steps)
		for i := range values {
			values[i], fresh[i] = at(float64(i+1))+noise*rng.NormFloat64(), true
		}
		t.Curves, t.Fresh = append(t.Curves, values), append(t.Fresh, fresh)
	}
	return t
}

// drawn returns one curve without noise.
func drawn(family string, steps float64, rng *rand.Rand) func(step float64) float64 {
	level, fall := math.Pow(rng.Float64(), 0.5), 1+rng.Float64()
	speed := steps * math.Exp(-1-3*rng.Float64())
	turn, late := steps*(0.4+0.5*rng.Float64()), 0.8*rng.Float64()
	power := 0.3 + 1.2*rng.Float64()
	switch family {
	case "power law":
		return func(s float64) float64 { return level + fall*math.Pow(1+s/speed, -power) }
	case "hill":
		return func(s float64) float64 { return level + fall/(1+math.Pow(s/speed, 1+power)) }
	case "logarithm":
		return func(s float64) float64 { return level + 2 - fall*math.Log1p(s/speed)/4 }
	case "turning": // a learning rate that falls late
		return func(s float64) float64 {
			return level + fall*math.Exp(-s/speed) - late/(1+math.Exp(-20*(s-turn)/steps))
		}
	case "diverging": // some curves do, each at its own step
		diverges := rng.Float64() < 0.3
		return func(s float64) float64 {
			if diverges && s > turn {
				return math.NaN()
			}
			return level + fall*math.Exp(-s/speed)
		}
	default:
		return func(s float64) float64 { return level + fall*math.Exp(-s/speed) }
	}
}
