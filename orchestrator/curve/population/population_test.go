package population_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/outbid-dev/outbid/orchestrator/curve/population"
)

// made are curves of so many looks that fall from 1 to an end of their own. luck is the scale of the noise.
func made(n, looks int, luck float64, rng *rand.Rand) []population.Curve {
	var curves []population.Curve
	for range n {
		end := rng.Float64()
		costs := make([]float64, looks)
		for k := range costs {
			costs[k] = end + (1-end)*math.Exp(-float64(k)) + luck*rng.NormFloat64()
		}
		curves = append(curves, population.Curve{X: []float64{end, rng.Float64()}, Costs: costs})
	}
	return curves
}

func settings(looks int) population.Settings {
	return population.Settings{
		Looks: looks, Choices: []bool{false, false}, Scale: population.NewScale(2), Random: rand.New(rand.NewPCG(1, 1)),
	}
}

func TestWarpsRiseAndComeBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		costs := rapid.SliceOfN(rapid.Float64Range(-1e6, 1e6), 1, 60).Draw(t, "costs")
		w := population.NewWarp([][]float64{costs, {math.NaN(), math.Inf(1)}})
		slices.Sort(costs)
		before := math.Inf(-1)
		for _, c := range costs {
			z := w.At(c)
			if z < before {
				t.Fatalf("%v is at %v, and a lesser cost at %v", c, z, before)
			}
			before = z
		}
		if best := w.Back(w.At(costs[0])); math.Abs(best-costs[0]) > 1e-9*max(1, math.Abs(costs[0])) {
			t.Fatalf("the best, %v, comes back as %v", costs[0], best)
		}
		if better := w.At(costs[0] - max(1, math.Abs(costs[0]))); better >= w.At(costs[0]) {
			t.Fatalf("what is better than the best is at %v, no better", better)
		}
	})
}

// How much early costs say is learned from the sweep's own curves.
func TestEarlyCostsCountAsMuchAsTheyMean(t *testing.T) {
	t.Parallel()
	const looks = 6
	gap := map[bool]float64{}
	for _, meaningful := range []bool{true, false} {
		curves := made(60, looks, 0.02, rand.New(rand.NewPCG(3, 4)))
		for i := range curves {
			curves[i].X = nil
			if !meaningful { // the beginning is another's
				copy(curves[i].Costs[:3], curves[(i+7)%len(curves)].Costs[:3])
			}
		}
		good, bad := population.Curve{Costs: []float64{1, 0.4, 0.2}}, population.Curve{Costs: []float64{1, 0.9, 0.85}}
		m := population.Learn(append(curves, good, bad), settings(looks))
		hit := m.Hits(m.Warp.At(0.2), looks-1)
		gap[meaningful] = m.Of(len(curves)).Chance(hit) - m.Of(len(curves)+1).Chance(hit)
	}
	if gap[true] < 0.3 || gap[false] > gap[true]/2 {
		t.Errorf("a good beginning is worth %.2f where it means something, and %.2f where it does not", gap[true], gap[false])
	}
}

// Of chances that are said, as many come true.
func TestChancesComeTrue(t *testing.T) {
	t.Parallel()
	const looks = 7
	rng := rand.New(rand.NewPCG(5, 6))
	said, came := 0.0, 0.0
	n := 0
	for range 4 {
		known := made(40, looks, 0.05, rng)
		fresh := made(60, looks, 0.05, rng)
		for _, c := range fresh {
			cut := population.Curve{Costs: c.Costs[:3]}
			m := population.Learn(append(slices.Clone(known), cut), settings(looks))
			goal := 0.3
			said += m.Of(len(known)).Chance(m.Hits(m.Warp.At(goal), looks-1))
			if slices.Min(c.Costs[3:]) < goal {
				came++
			}
			n++
		}
	}
	if said, came := said/float64(n), came/float64(n); math.Abs(said-came) > 0.1 {
		t.Errorf("chances of %.3f were said, and %.3f came true", said, came)
	}
}

// The process finds out which parameter matters, and forecasts configurations that were not tried.
func TestConfigurationsAreLearnedFrom(t *testing.T) {
	t.Parallel()
	curves := made(40, 5, 0.01, rand.New(rand.NewPCG(7, 8)))
	s := settings(5)
	s.Tries = 60
	m := population.Learn(curves, s)
	good, _ := m.End([]float64{0.05, 0.5})
	bad, _ := m.End([]float64{0.95, 0.5})
	if good > bad-1 {
		t.Errorf("a configuration that ends well is expected at %.2f, one that ends badly at %.2f", good, bad)
	}
	if scale := m.Scale(s.Scale); scale.Lengths[1] <= scale.Lengths[0] {
		t.Errorf("the parameter that matters has length %v, the other %v", scale.Lengths[0], scale.Lengths[1])
	}
	hit := m.Hits(m.Warp.At(0.1), 4)
	if a, b := m.Fresh([]float64{0.05, 0.5}).Chance(hit), m.Fresh([]float64{0.95, 0.5}).Chance(hit); a <= b {
		t.Errorf("a new trial there has a chance of %.2f, and one of a bad configuration %.2f", a, b)
	}
}

// A step is worth at least the chance per step of training on for any number of looks, which is one way to train; and never more than
// a sure hit at the next look.
func TestAStepIsWorthItsBestWayOfTraining(t *testing.T) {
	t.Parallel()
	looks := []int64{2, 3, 4, 6, 8, 11, 16}
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		curves := made(rapid.IntRange(1, 30).Draw(t, "curves"), len(looks), rapid.Float64Range(0, 0.3).Draw(t, "luck"), rng)
		cut := rapid.IntRange(0, len(looks)-1).Draw(t, "cut")
		curves[0].Costs = curves[0].Costs[:cut]
		m := population.Learn(curves, settings(len(looks)))
		below := m.Warp.At(rapid.Float64Range(-0.2, 1).Draw(t, "goal"))
		p := m.Of(0)
		worth := p.Worth(m.Hits(below, len(looks)-1).Worth(looks))
		at, next := int64(0), looks[cut]
		if cut > 0 {
			at = looks[cut-1]
		}
		whole := m.Hits(below, len(looks)-1)
		plain := whole.Chance(cut-1, m.Newest(0))
		if plain == 0 {
			return
		}
		leaned := min(p.Chance(whole)/plain, 20)
		for to := cut; to < len(looks); to++ {
			per := leaned * m.Hits(below, to).Chance(cut-1, m.Newest(0)) / float64(looks[to]-at)
			if per > worth*(1+1e-9)+leaned*1e-4 {
				t.Fatalf("from look %d to %d the chance for each step is %v, and a step is worth %v", cut-1, to, per, worth)
			}
		}
		if most := leaned / float64(next-at); worth > most*(1+1e-9) {
			t.Fatalf("a step from look %d is worth %v, more than a sure hit, %v", cut-1, worth, most)
		}
	})
}
