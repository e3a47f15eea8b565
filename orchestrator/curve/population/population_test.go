package population_test

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	diff "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/outbid-dev/outbid/orchestrator/curve/population"
)

func looks() []int64 { return []int64{3, 4, 6, 8, 12, 17, 24, 34, 48, 68, 100} }

// made returns curves whose costs are in the order of their qualities, except for noise at the first looks and at the
// end.
func made(n int, early, late float64, rng *rand.Rand) []population.Curve {
	var curves []population.Curve
	for range n {
		quality := rng.NormFloat64()
		costs := make([]float64, len(looks()))
		for k := range costs {
			costs[k] = 10 - quality + early*rng.NormFloat64()/float64(k+1)
		}
		costs[len(costs)-1] = 5 - 4*late - quality + late*rng.NormFloat64()
		curves = append(curves, population.Curve{X: []float64{below(quality), rng.Float64()}, Costs: costs})
	}
	return curves
}

func below(z float64) float64 { return 0.5 * math.Erfc(-z/math.Sqrt2) }

func learn(curves []population.Curve) *population.Model {
	w := population.NewGittinsIndex(looks())
	return population.Learn(curves, population.Settings{
		Gittins: w, Beliefs: population.Believe(curves, w), Choices: []bool{false, false}, Scale: population.NewScale(2), Tries: 60,
		Random: rand.New(rand.NewPCG(1, 1)),
	})
}

// Priors are probabilities, and correlation models reveal more at each look but never everything.
func TestCorrelationModelsAreSound(t *testing.T) {
	t.Parallel()
	sum := 0.0
	for _, c := range population.CorrelationModels() {
		sum += c.Prior
		if !slices.IsSorted(c.Told[:]) || c.Told[0] <= 0 || c.Told[5] > 1 || c.Sure <= 0 || c.Sure >= 1 {
			t.Errorf("%s: %v, %v", c.Name, c.Told, c.Sure)
		}
	}
	if math.Abs(sum-1) > 1e-12 {
		t.Errorf("priors sum up to %v", sum)
	}
}

// weight returns the total weight of courses.
func weight(b population.Beliefs, names ...string) float64 {
	sum := 0.0
	for i, c := range population.CorrelationModels() {
		if slices.Contains(names, c.Name) {
			sum += b.Weights[i]
		}
	}
	return sum
}

// Ends that agree with early ranks raise the weight of courses with informative ranks; other ends raise that of
// the rest.
func TestEndsTeachWhatStandingsAreWorth(t *testing.T) {
	t.Parallel()
	w := population.NewGittinsIndex(looks())
	told := func(late float64) (little, much float64) {
		const seeds = 20
		for seed := range uint64(seeds) {
			b := population.Believe(made(24, 0.2, late, rand.New(rand.NewPCG(2, seed))), w)
			little += weight(b, "nothing", "late", "roughly") / seeds
			much += weight(b, "well", "surely") / seeds
		}
		return little, much
	}
	if little, much := told(0.1); much < 0.9 {
		t.Errorf("where standings tell ends, that they do has weight %.3f, and that they tell little %.3f", much, little)
	}
	if little, much := told(20); little < 0.9 || much > 0.05 {
		t.Errorf("where standings tell nothing, that they tell little has weight %.3f, and that they tell much %.3f", little, much)
	}
}

// How much curves fall distinguishes correlation models long before the first curve ends.
func TestFallsTeachWhatStandingsAreWorth(t *testing.T) {
	t.Parallel()
	w := population.NewGittinsIndex(looks())
	told := func(fall float64) float64 {
		curves := made(8, 0, 0, rand.New(rand.NewPCG(2, 3)))
		for i := range curves {
			for k := range curves[i].Costs {
				curves[i].Costs[k] -= fall * math.Log2(float64(looks()[k]))
			}
			curves[i].Costs = curves[i].Costs[:4]
		}
		return weight(population.Believe(curves, w), "well", "surely")
	}
	before := weight(population.Prior(), "well", "surely")
	if still := told(0.02); still < before+0.5 {
		t.Errorf("of curves that keep still, standings tell the end with weight %.3f, and beforehand with %.3f", still, before)
	}
	if falling := told(1.5); falling > before/2 {
		t.Errorf("of curves that fall by more than they differ, standings tell the end with weight %.3f, and beforehand with %.3f", falling, before)
	}
}

// Neither the unit nor the offset of a metric matters.
func TestScaleDoesNotMatter(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		curves := made(rapid.IntRange(1, 20).Draw(t, "curves"), 1, 1, rng)
		for i := range curves {
			curves[i].X, curves[i].Costs = nil, curves[i].Costs[:rapid.IntRange(0, len(looks())).Draw(t, "passed")]
		}
		others := make([]population.Curve, len(curves))
		for i, c := range curves {
			for _, v := range c.Costs {
				others[i].Costs = append(others[i].Costs, 4*v-100)
			}
		}
		a, b := learn(curves), learn(others)
		for i := range curves {
			if d := diff.Diff(a.Of(i), b.Of(i), cmpopts.EquateApprox(1e-6, 1e-9)); d != "" {
				t.Fatalf("curve %d: %+v, and on another scale %+v", i, a.Of(i), b.Of(i))
			}
		}
	})
}

// At a look, a better rank is never worth less, and no training is worth more than if the next look were certain to
// be the end, above the bar. The chance may be lower by up to a hundredth: it assumes a normal distribution, which
// narrows with better ranks under a correlation model with a ceiling.
func TestBetterStandingsAreWorthMore(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		curves := made(30, 1, 1, rng)
		cut := rapid.IntRange(1, len(looks())-1).Draw(t, "cut")
		for i := range curves[5:] {
			curves[5+i].Costs = curves[5+i].Costs[:cut]
		}
		m := learn(curves)
		order := slices.Collect(func(yield func(int) bool) {
			for i := 5; i < len(curves) && yield(i); i++ {
			}
		})
		slices.SortFunc(order, func(a, b int) int { return cmp.Compare(curves[a].Costs[cut-1], curves[b].Costs[cut-1]) })
		most := 100 / float64(looks()[cut]-looks()[cut-1])
		for n, i := range order {
			o := m.Of(i)
			if o.Worth < 0 || o.Worth > most || o.Chance < 0 || o.Chance > 1 {
				t.Fatalf("curve %d: %+v, and a step is worth %v at the most", i, o, most)
			}
			if n == 0 {
				continue
			}
			if better := m.Of(order[n-1]); better.Worth < o.Worth*(1-1e-9) || better.Chance < o.Chance*0.99 || better.Mean < o.Mean-1e-9 {
				t.Fatalf("after %d looks the curve that stands better is worth %+v, the other %+v", cut, better, o)
			}
		}
	})
}

// A curve that begins well is worth more than a new one, and a new one more than a curve that begins badly, so bad
// curves wait.
func TestWhatBeginsBadlyWaits(t *testing.T) {
	t.Parallel()
	curves := made(40, 0.5, 0.5, rand.New(rand.NewPCG(4, 5)))
	for i := range curves {
		curves[i].Costs = curves[i].Costs[:2]
	}
	m := learn(curves)
	best, worst := 0, 0
	for i := range curves {
		if curves[i].Costs[1] < curves[best].Costs[1] {
			best = i
		}
		if curves[i].Costs[1] > curves[worst].Costs[1] {
			worst = i
		}
	}
	if b, f, w := m.Of(best).Worth, m.Fresh().Worth, m.Of(worst).Worth; b <= f || f <= w {
		t.Errorf("the best is worth %v, a new one %v, the worst %v", b, f, w)
	}
	if place, of := m.Standing(best); place != 1 || of != 40 {
		t.Errorf("the best is number %d of %d", place, of)
	}
}

// The predicted probabilities match the frequencies if the curves with the best ranks at a look are trained to the
// end.
func TestChancesComeTrue(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(5, 6))
	said, came, n := 0.0, 0.0, 0
	for range 8 {
		all := made(120, 1, 0.6, rng)
		slices.SortFunc(all, func(a, b population.Curve) int { return cmp.Compare(a.Costs[4], b.Costs[4]) })
		best := math.Inf(1)
		ends := make([]float64, len(all))
		for i := range all {
			ends[i], all[i].X = all[i].Costs[len(looks())-1], nil
			if i < 30 {
				best = min(best, ends[i])
			} else {
				all[i].Costs = all[i].Costs[:5]
			}
		}
		m := learn(all)
		for i := 30; i < len(all); i++ {
			said += m.Of(i).Chance
			if ends[i] < best {
				came++
			}
			n++
		}
	}
	if said, came := said/float64(n), came/float64(n); math.Abs(said-came) > 0.02 {
		t.Errorf("chances of %.4f were said, and %.4f came true", said, came)
	}
}

// The process finds the parameter that matters, and forecasts configurations that were not tried.
func TestConfigurationsAreLearnedFrom(t *testing.T) {
	t.Parallel()
	m := learn(made(40, 0.1, 0.1, rand.New(rand.NewPCG(7, 8))))
	if good, bad := m.Promise([]float64{0.97, 0.5}), m.Promise([]float64{0.1, 0.5}); good < 5*bad {
		t.Errorf("a configuration that ends well has a chance of %.4f to end among the best, one that ends badly %.4f", good, bad)
	}
	if scale := m.Scale(population.NewScale(2)); scale.Lengths[1] <= scale.Lengths[0] {
		t.Errorf("the parameter that matters has length %v, the other %v", scale.Lengths[0], scale.Lengths[1])
	}
}

// A look without a measurement has no effect: a curve keeps its rank.
func TestUnmeasuredLooksAreNoStandings(t *testing.T) {
	t.Parallel()
	curves := made(10, 0.1, 0.1, rand.New(rand.NewPCG(9, 9)))
	for i := range curves {
		curves[i] = population.Curve{Costs: slices.Clone(curves[i].Costs[:2])}
	}
	before := learn(curves).Of(3)
	for i := range curves {
		curves[i].Costs = append(curves[i].Costs, math.NaN())
	}
	after := learn(curves).Of(3)
	if before.Mean != after.Mean || before.Chance != after.Chance {
		t.Errorf("%+v, and after a look that nobody was measured at %+v", before, after)
	}
	if m := learn([]population.Curve{{Costs: []float64{math.NaN()}}, {}}); m.Of(0).Mean != m.Fresh().Mean {
		t.Errorf("of a curve that was never measured %+v is thought, and of a new one %+v", m.Of(0), m.Fresh())
	}
}

// Standings are trusted under correlation models that are informative early and certain, and not under one that is
// certain but late.
func TestTrust(t *testing.T) {
	t.Parallel()
	for i, c := range population.CorrelationModels() {
		b := population.Beliefs{Weights: make([]float64, len(population.CorrelationModels()))}
		b.Weights[i] = 1
		want := 0.0
		if c.Name == "well" || c.Name == "surely" {
			want = 1
		}
		if got := b.Trust(); got != want {
			t.Errorf("%s is trusted by %v, want %v", c.Name, got, want)
		}
	}
}
