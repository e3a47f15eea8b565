package sample

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/outbid-dev/outbid/orchestrator/tuner/space"
)

// costs runs n trials of a sampler and returns their costs and configurations.
func costs(t testing.TB, s Learner, n int, cost func(Config) float64) (seen []float64, configs []Config) {
	t.Helper()
	for i := range n {
		cfg, ok, err := s.Next()
		if err != nil || !ok {
			t.Fatal(ok, err)
		}
		s.Took(cfg)
		s.Told(i, cost(cfg))
		seen, configs = append(seen, cost(cfg)), append(configs, cfg)
	}
	return seen, configs
}

// past returns an earlier sweep of 40 trials.
func past(t testing.TB, s *space.Space, seed uint64, cost func(Config) float64) Past {
	t.Helper()
	seen, configs := costs(t, NewBayes(s, seed), 40, cost)
	p := Past{Costs: seen}
	for _, cfg := range configs {
		p.Points = append(p.Points, s.Beyond(cfg))
	}
	return p
}

func remembering(s *space.Space, seed uint64, past ...Past) *Bayes {
	b := NewBayes(s, seed)
	b.Remember(past)
	return b
}

// shifted is mixedCost with another best learning rate.
func shifted(by float64) func(Config) float64 {
	return func(cfg Config) float64 {
		return mixedCost(Config{"lr": cfg["lr"].(float64) * by, "kind": cfg["kind"], "depth": cfg["depth"]}) //nolint:forcetypeassert // the space has it
	}
}

// A sweep that remembers one like it has better trials soon. One that remembers its opposite is not much worse in the
// end.
func TestBayesStartsFromEarlierSweeps(t *testing.T) {
	t.Parallel()
	s := mixedSpace(t)
	alike, opposite := past(t, s, 100, shifted(1.5)), past(t, s, 100, func(cfg Config) float64 { return -mixedCost(cfg) })
	var plain, helped, misled [2]float64
	for seed := range uint64(10) {
		for _, one := range []struct {
			sampler *Bayes
			into    *[2]float64
		}{{NewBayes(s, seed), &plain}, {remembering(s, seed, alike), &helped}, {remembering(s, seed, opposite), &misled}} {
			seen, _ := costs(t, one.sampler, 30, mixedCost)
			one.into[0] += slices.Min(seen[:6]) / 10
			one.into[1] += slices.Min(seen) / 10
		}
	}
	t.Logf("mean regret after 6 and 30 trials: %.4f; with memory %.4f; misled %.4f", plain, helped, misled)
	if helped[0] > plain[0]/2 {
		t.Errorf("after 6 trials %.4f with memory, %.4f without", helped[0], plain[0])
	}
	if misled[1] > plain[1]+0.01 {
		t.Errorf("after 30 trials %.4f misled, %.4f without memory", misled[1], plain[1])
	}
}

// Earlier trials whose costs have nothing to do with their configurations change nothing.
func TestBayesIgnoresNoise(t *testing.T) {
	t.Parallel()
	s := mixedSpace(t)
	noise := past(t, s, 100, mixedCost)
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(noise.Costs), func(i, j int) { noise.Costs[i], noise.Costs[j] = noise.Costs[j], noise.Costs[i] })
	_, want := costs(t, NewBayes(s, 1), 15, mixedCost)
	if _, got := costs(t, remembering(s, 1, noise), 15, mixedCost); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// Whatever is remembered, a restored sampler that is given it again makes the same choices, all of them in the space.
func TestBayesRemembersAfterARestart(t *testing.T) {
	t.Parallel()
	s := mixedSpace(t)
	like := past(t, s, 100, shifted(3))
	rapid.Check(t, func(t *rapid.T) {
		coordinate := rapid.OneOf(rapid.Float64Range(-1, 2), rapid.Just(math.NaN()))
		odd := Past{}
		for range rapid.IntRange(0, 8).Draw(t, "trials") {
			odd.Points = append(odd.Points, rapid.SliceOfN(coordinate, s.Dims(), s.Dims()).Draw(t, "point"))
			odd.Costs = append(odd.Costs, rapid.OneOf(rapid.Float64(), rapid.Just(math.NaN())).Draw(t, "cost"))
		}
		all := rapid.SampledFrom([][]Past{{like}, {odd}, {like, odd}, {like, like, odd, like}}).Draw(t, "past")
		b := remembering(s, rapid.Uint64().Draw(t, "seed"), all...)
		for i := range rapid.IntRange(1, 15).Draw(t, "n") {
			back := restored(t, s, b)
			back.(Rememberer).Remember(all) //nolint:forcetypeassert // it was one
			cfg, ok, err := b.Next()
			if err != nil || !ok {
				t.Fatal(ok, err)
			}
			if again, _, err := back.Next(); err != nil || !reflect.DeepEqual(again, cfg) {
				t.Fatalf("trial %d: restored, it chooses %v, not %v: %v", i, again, cfg, err)
			}
			if err := s.Check(cfg); err != nil {
				t.Fatal(err)
			}
			b.Took(cfg)
			if rapid.Bool().Draw(t, "ends") {
				b.Told(i, mixedCost(cfg))
			}
		}
		if err := b.Widen(s); err != nil {
			t.Fatal(err)
		}
		if _, ok, err := b.Next(); !ok || err != nil {
			t.Fatal(ok, err)
		}
	})
}

// BenchmarkRemembering shows the cost of the first choices of a sweep that remembers four others of 40 trials.
func BenchmarkRemembering(b *testing.B) {
	s := mixedSpace(b)
	var all []Past
	for seed := range uint64(4) {
		all = append(all, past(b, s, seed, shifted(1.5)))
	}
	for _, trials := range []int{1, 10, 100} {
		b.Run(fmt.Sprint("trials=", trials), func(b *testing.B) {
			for b.Loop() {
				costs(b, remembering(s, 1, all...), trials, mixedCost)
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/1000/float64(trials*b.N), "ms/choice")
		})
	}
}
