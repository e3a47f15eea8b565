package sample

import (
	"fmt"
	"math"
	"reflect"
	"testing"

	"google.golang.org/protobuf/types/known/structpb"
	"pgregory.net/rapid"

	"github.com/outbid-dev/outbid/orchestrator/tuner/space"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// mixedSpace has a number on a log scale, a choice of three values, and an integer that is present for one of them.
func mixedSpace(t testing.TB, constraints ...string) *space.Space {
	t.Helper()
	s, err := space.Compile(map[string]*outbidv1.Parameter{
		"lr":    {Kind: &outbidv1.Parameter_Float{Float: &outbidv1.FloatRange{Low: 1e-4, High: 1, Log: true}}},
		"kind":  {Kind: &outbidv1.Parameter_Choice{Choice: &outbidv1.Choice{Values: values("a", "b", "c")}}},
		"depth": {Kind: &outbidv1.Parameter_Int{Int: &outbidv1.IntRange{Low: 1, High: 8}}, When: &outbidv1.Condition{Param: "kind", In: values("b")}},
	}, constraints)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func values(texts ...string) (list []*structpb.Value) {
	for _, text := range texts {
		list = append(list, structpb.NewStringValue(text))
	}
	return list
}

// mixedCost is minimal, 0, for kind b, depth 5 and lr 0.02.
func mixedCost(cfg Config) float64 {
	cost := math.Abs(math.Log10(cfg["lr"].(float64))+1.7) / 4 //nolint:forcetypeassert // the space has it
	if depth, ok := cfg["depth"].(int64); ok {
		return cost + math.Abs(float64(depth-5))/20
	}
	return cost + 0.3
}

// Bayes finds the best configuration of a space with conditions in fewer trials than random search.
func TestBayesFindsTheBest(t *testing.T) {
	t.Parallel()
	best := func(s Sampler, n int) float64 {
		least := math.Inf(1)
		for i := range n {
			cfg, ok, err := s.Next()
			if err != nil || !ok {
				t.Fatal(ok, err)
			}
			cost := mixedCost(cfg)
			if l, ok := s.(Learner); ok {
				l.Took(cfg)
				l.Told(i, cost)
			}
			least = min(least, cost)
		}
		return least
	}
	model, chance := 0.0, 0.0
	for seed := range uint64(10) {
		model += best(NewBayes(mixedSpace(t), seed), 30) / 10
		chance += best(NewRandom(mixedSpace(t), seed), 30) / 10
	}
	t.Logf("mean regret after 30 trials: %.4f, by chance %.4f", model, chance)
	if model > 0.01 || model > chance/3 {
		t.Errorf("mean regret after 30 trials: %.4f, by chance %.4f", model, chance)
	}
}

// Whatever trials cost, and whenever they end: each configuration is in the space, meets its constraints, and equals
// the choice of a restored sampler. In a space without continuous numbers, no configuration is repeated while others
// are left.
func TestBayesWhateverTrialsCost(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := mixedSpace(&testing.T{}, "lr < 0.5")
		var a Learner = NewBayes(s, rapid.Uint64().Draw(t, "seed"))
		running := []int{}
		for n := range rapid.IntRange(1, 20).Draw(t, "trials") {
			if rapid.IntRange(0, 9).Draw(t, "restored") == 0 {
				a = restored(t, s, a)
			}
			b := restored(t, s, a)
			cfg, ok, err := a.Next()
			if again, _, _ := b.Next(); err != nil || !ok || !reflect.DeepEqual(cfg, again) {
				t.Fatalf("%v, and restored %v: %v", cfg, again, err)
			}
			if !s.Allowed(cfg) {
				t.Fatalf("%v is not allowed", cfg)
			}
			a.Took(cfg)
			running = append(running, n)
			for len(running) > rapid.IntRange(0, 4).Draw(t, "at once") {
				cost := rapid.SampledFrom([]float64{mixedCost(cfg), 0, 1e300, -1e300, math.NaN(), math.Inf(1), math.Inf(-1)}).Draw(t, "cost")
				a.Told(running[0], cost)
				running = running[1:]
			}
		}
	})
}

// After widening, the sampler keeps what it learned: the points of its trials give the configurations that they had.
func TestBayesInAWiderSpace(t *testing.T) {
	t.Parallel()
	b, configs := NewBayes(mixedSpace(t), 1), []Config{}
	for n := range 20 {
		cfg, _, err := b.Next()
		if err != nil {
			t.Fatal(err)
		}
		b.Took(cfg)
		b.Told(n, mixedCost(cfg))
		configs = append(configs, cfg)
	}
	wider, err := space.Compile(map[string]*outbidv1.Parameter{
		"lr":    {Kind: &outbidv1.Parameter_Float{Float: &outbidv1.FloatRange{Low: 1e-6, High: 10, Log: true}}},
		"kind":  {Kind: &outbidv1.Parameter_Choice{Choice: &outbidv1.Choice{Values: values("a", "b", "c", "d")}}},
		"depth": {Kind: &outbidv1.Parameter_Int{Int: &outbidv1.IntRange{Low: 1, High: 12}}, When: &outbidv1.Condition{Param: "kind", In: values("b")}},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Widen(wider); err != nil {
		t.Fatal(err)
	}
	for i, want := range configs {
		got := wider.At(zeroes(b.Points[i]))
		if got["kind"] != want["kind"] || got["depth"] != want["depth"] || math.Abs(math.Log(got["lr"].(float64)/want["lr"].(float64))) > 1e-6 { //nolint:forcetypeassert // it is one
			t.Errorf("trial %d was %v and is %v", i, want, got)
		}
	}
	if _, ok, err := b.Next(); !ok || err != nil {
		t.Error(ok, err)
	}
}

func restored(t *rapid.T, s *space.Space, from Sampler) Learner {
	snapshot, err := from.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	back, err := Restore(s, snapshot)
	if err != nil {
		t.Fatal(err)
	}
	return back.(Learner) //nolint:forcetypeassert // it was one
}

// BenchmarkBayes shows that the cost of a choice does not grow with the sweep.
func BenchmarkBayes(b *testing.B) {
	for _, trials := range []int{50, 100, 300, 1000} {
		b.Run(fmt.Sprint("trials=", trials), func(b *testing.B) {
			s := NewBayes(mixedSpace(b), 1)
			choose := func() {
				cfg, _, err := s.Next()
				if err != nil {
					b.Fatal(err)
				}
				s.Took(cfg)
				s.Told(s.Trials-1, mixedCost(cfg))
			}
			for range trials {
				choose()
			}
			for b.Loop() {
				choose()
			}
		})
	}
}
