package oasis

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// A small job's offer has the payoff of the best of all schedules there are, found by the paper's recursion over every
// number of workers in every slot, and in a slot over every way to spread them.
func TestOffersAreExact(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		slots, servers := rapid.IntRange(1, 5).Draw(t, "slots"), rapid.IntRange(1, 3).Draw(t, "servers")
		capacity := make([][]float64, servers)
		for h := range capacity {
			capacity[h] = []float64{float64(rapid.IntRange(0, 4).Draw(t, "gpus")), float64(rapid.IntRange(1, 8).Draw(t, "cpus"))}
		}
		c := New(slots, capacity, Prices{Low: []float64{0.5, 0.1}, High: []float64{8, 3}})
		for range 3 {
			j := Job{
				Arrives: rapid.IntRange(0, slots-1).Draw(t, "arrives"), Needs: rapid.IntRange(1, 8).Draw(t, "needs"),
				Most: rapid.IntRange(1, 4).Draw(t, "most"), Worker: []float64{1, float64(rapid.IntRange(0, 3).Draw(t, "cpu"))},
			}
			worth := rapid.Float64Range(0, 60).Draw(t, "worth")
			j.Utility = func(late int) float64 { return worth / (1 + math.Exp(float64(late)-2)) }
			got, want := c.Offer(j), brute(c, j)
			if math.IsInf(want, -1) {
				if got.Schedule != nil || got.Admitted {
					t.Fatalf("nothing is possible, and the offer is %+v", got)
				}
				continue
			}
			if math.Abs(got.Worth-got.Cost-want) > 1e-9 || got.Admitted != (got.Worth > got.Cost) {
				t.Fatalf("payoff %g, the best is %g: %+v", got.Worth-got.Cost, want, got)
			}
			checkSchedule(t, c, j, got)
			if got.Admitted {
				c.Promise(j, got)
			}
		}
	})
}

// brute is the highest payoff; minus infinity if the job cannot be served.
func brute(c *Cluster, j Job) float64 {
	best := math.Inf(-1)
	least := make([]float64, j.Needs+1) // by the workers so far
	for n := range least {
		least[n] = math.Inf(1)
	}
	least[0] = 0
	for slot := j.Arrives; slot < len(c.used); slot++ {
		next := make([]float64, len(least))
		for n := range next {
			next[n] = math.Inf(1)
			for d := 0; d <= min(n, j.Most); d++ {
				next[n] = min(next[n], least[n-d]+spread(c, j, slot, 0, d))
			}
		}
		least = next
		best = max(best, j.Utility(slot-j.Arrives)-least[j.Needs])
	}
	return best
}

// spread is the least cost of so many workers in a slot on the servers from one on.
func spread(c *Cluster, j Job, slot, server, workers int) float64 {
	if workers == 0 {
		return 0
	}
	if server == len(c.capacity) {
		return math.Inf(1)
	}
	price, least := 0.0, math.Inf(1)
	for k, w := range j.Worker {
		price += w * c.Price(slot, server, k)
	}
	for n := range workers + 1 {
		fits := true
		for k, w := range j.Worker {
			fits = fits && w*float64(n) <= c.capacity[server][k]-c.used[slot][server][k]+1e-9
		}
		if fits {
			least = min(least, float64(n)*price+spread(c, j, slot, server+1, workers-n))
		}
	}
	return least
}

func checkSchedule(t *rapid.T, c *Cluster, j Job, o Offer) {
	t.Helper()
	bySlot, all := map[int]int{}, 0
	for _, s := range o.Schedule {
		if s.Slot < j.Arrives || s.Slot > o.End || s.Workers < 1 {
			t.Fatalf("bad share %+v of %+v", s, o)
		}
		for k, w := range j.Worker {
			if c.used[s.Slot][s.Server][k]+w*float64(s.Workers) > c.capacity[s.Server][k]+1e-9 {
				t.Fatalf("no room for %+v", s)
			}
		}
		bySlot[s.Slot] += s.Workers
		all += s.Workers
	}
	for slot, n := range bySlot {
		if n > j.Most {
			t.Fatalf("%d workers in slot %d, at most %d", n, slot, j.Most)
		}
	}
	if all != j.Needs {
		t.Fatalf("%d workers in all, it needs %d", all, j.Needs)
	}
}

// Prices rise as promises are made, until a job that was worth it is not, and it is told what it would have cost.
func TestPricesRiseUntilJobsAreRefused(t *testing.T) {
	t.Parallel()
	c := New(4, [][]float64{{4}}, Prices{Low: []float64{1}, High: []float64{100}})
	j := Job{Needs: 4, Most: 1, Worker: []float64{1}, Utility: func(int) float64 { return 60 }}
	admitted := 0
	for range 6 {
		before := c.Price(0, 0, 0)
		o := c.Offer(j)
		if !o.Admitted {
			if admitted != 3 || !strings.HasPrefix(o.Reason, "not admitted: would cost 126.5 and be worth 60") {
				t.Errorf("after %d: %q", admitted, o.Reason)
			}
			return
		}
		if !strings.HasPrefix(o.Reason, "admitted: 1 to 1 workers from slot 0, ends in slot 3, payoff ") {
			t.Errorf("%q", o.Reason)
		}
		c.Promise(j, o)
		admitted++
		if c.Price(0, 0, 0) <= before {
			t.Error("the price did not rise")
		}
	}
	t.Errorf("%d admitted", admitted)
}

func TestNeeds(t *testing.T) {
	t.Parallel()
	if got := Needs(10, 4, 5, 0.01, 1, 100); got != 6 {
		t.Errorf("200 mini-batches of 0.03 slots are %d", got)
	}
}

// BenchmarkOffer is one job of 100 chunks and 200 epochs on 100 servers and 300 slots, on which others have promises.
func BenchmarkOffer(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 1))
	capacity := make([][]float64, 100)
	for h := range capacity {
		capacity[h] = []float64{8, 96, 512}
	}
	c := New(300, capacity, Prices{Low: []float64{0.01, 0.001, 0.0001}, High: []float64{5, 0.5, 0.05}})
	for t := range c.used {
		for h := range c.used[t] {
			for k := range c.used[t][h] {
				c.used[t][h][k] = capacity[h][k] * rng.Float64()
			}
		}
	}
	j := Job{
		Needs: Needs(200, 100, 10, 0.09, 1, 200), Most: 100, Worker: []float64{1, 4, 16},
		Utility: func(late int) float64 { return 1e5 / (1 + math.Exp(0.1*float64(late-200))) },
	}
	for b.Loop() {
		if o := c.Offer(j); len(o.Schedule) == 0 {
			b.Fatal(o.Reason)
		}
	}
}
