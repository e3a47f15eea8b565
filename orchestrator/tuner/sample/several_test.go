package sample

import (
	"math"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/outbid-dev/outbid/orchestrator/tuner/space"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// valley has two numbers. The front of its costs is where b is 0.7: a against 1 - sqrt(a).
func valley(t testing.TB) *space.Space {
	t.Helper()
	unit := &outbidv1.Parameter{Kind: &outbidv1.Parameter_Float{Float: &outbidv1.FloatRange{Low: 0, High: 1}}}
	s, err := space.Compile(map[string]*outbidv1.Parameter{"a": unit, "b": unit, "c": unit}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// valleyCosts have scales that differ by a factor of a thousand.
func valleyCosts(cfg Config) []float64 {
	a, b, c := cfg["a"].(float64), cfg["b"].(float64), cfg["c"].(float64) //nolint:forcetypeassert // the space has them
	off := math.Abs(b-0.7) + math.Abs(c-0.2)
	return []float64{a + off, 1000 * (1 - math.Sqrt(a) + off)}
}

// covered returns the area that trials dominate below (1, 1000), relative to the largest possible one.
func covered(all [][]float64) float64 {
	area := 0.0
	for i := range 1000 { // for each value of the first cost, the least second one
		least := 1000.0
		for _, v := range all {
			if v[0] <= (float64(i)+0.5)/1000 {
				least = min(least, v[1])
			}
		}
		area += (1000 - least) / 1e6
	}
	return area / (2.0 / 3)
}

func TestSeveralCostsSpreadAlongTheirFront(t *testing.T) {
	t.Parallel()
	model, chance := 0.0, 0.0
	for seed := range uint64(5) {
		for _, s := range []Sampler{NewBayes(valley(t), seed), NewRandom(valley(t), seed)} {
			var found [][]float64
			for i := range 40 {
				cfg, _, err := s.Next()
				if err != nil {
					t.Fatal(err)
				}
				found = append(found, valleyCosts(cfg))
				if l, ok := s.(SeveralLearner); ok {
					l.Took(cfg)
					l.ToldAll(i, found[i])
				}
			}
			if _, ok := s.(SeveralLearner); ok {
				model += covered(found) / 5
			} else {
				chance += covered(found) / 5
			}
		}
	}
	t.Logf("covered after 40 trials: %.3f, by chance %.3f", model, chance)
	if model < 0.75 || model < chance+0.2 {
		t.Errorf("covered after 40 trials: %.3f, by chance %.3f", model, chance)
	}
}

// Whatever the costs are, and whenever trials end, configurations are allowed and those of a restored sampler.
func TestSeveralCostsWhateverTheyAre(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := mixedSpace(&testing.T{}, "lr < 0.5")
		var a Learner = NewBayes(s, rapid.Uint64().Draw(t, "seed"))
		objectives := rapid.IntRange(2, 4).Draw(t, "objectives")
		running := []int{}
		for n := range rapid.IntRange(1, 20).Draw(t, "trials") {
			if rapid.Bool().Draw(t, "restored") {
				a = restored(t, s, a)
			}
			b := restored(t, s, a)
			cfg, ok, err := a.Next()
			if again, _, _ := b.Next(); err != nil || !ok || !reflect.DeepEqual(cfg, again) || !s.Allowed(cfg) {
				t.Fatalf("%v, and restored %v: %v", cfg, again, err)
			}
			a.Took(cfg)
			running = append(running, n)
			for len(running) > rapid.IntRange(0, 4).Draw(t, "at once") {
				costs := make([]float64, objectives)
				for k := range costs {
					costs[k] = rapid.SampledFrom([]float64{0, 1, 2.5, 1e300, -1e300, math.NaN(), math.Inf(1)}).Draw(t, "cost")
				}
				a.(SeveralLearner).ToldAll(running[0], costs) //nolint:forcetypeassert // it is one
				running = running[1:]
			}
		}
	})
}

// A snapshot keeps the costs, so that a restored sampler makes the same choices.
func TestSeveralCostsAreRestored(t *testing.T) {
	t.Parallel()
	s := valley(t)
	a := NewBayes(s, 3)
	for n := range 150 { // more than are kept
		cfg, _, err := a.Next()
		if err != nil {
			t.Fatal(err)
		}
		a.Took(cfg)
		if n%7 == 6 {
			a.ToldAll(n, []float64{1, math.NaN()})
			continue
		}
		a.ToldAll(n, valleyCosts(cfg))
		if n%30 != 29 {
			continue
		}
		snapshot, err := a.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		b, err := Restore(s, snapshot)
		if err != nil {
			t.Fatal(err)
		}
		want, _, _ := a.Next()
		if got, _, err := b.Next(); err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("after %d trials: %v, and restored %v: %v", n+1, want, got, err)
		}
	}
	if len(a.Kept) != mostKept || len(a.Vectors) != mostKept {
		t.Errorf("%d trials and %d costs are kept", len(a.Kept), len(a.Vectors))
	}
	a.Vectors[0] = []float64{1, 2, 3}
	snapshot, err := a.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Restore(s, snapshot); err == nil {
		t.Error("a snapshot with different numbers of costs is restored")
	}
}
