package schedule

import (
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// A small job's offer has the payoff of the best of all schedules, found by the paper's recursion over every number of
// workers in every slot and every way to spread them.
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
				Arrives: rapid.IntRange(0, slots-1).Draw(t, "arrives"), Work: float64(rapid.IntRange(1, 8).Draw(t, "needs")),
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
				c.Promise(j.Worker, got.Schedule)
			}
		}
	})
}

// brute returns the highest payoff, or minus infinity if the job cannot be served.
func brute(c *Cluster, j Job) float64 {
	best := math.Inf(-1)
	least := make([]float64, int(j.Work)+1) // by the workers so far
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
		best = max(best, j.Utility(slot-j.Arrives)-least[int(j.Work)])
	}
	return best
}

// spread returns the least cost of a number of workers in a slot on the servers from an index on.
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
	if float64(all) != j.Work {
		t.Fatalf("%d workers in all, it needs %g", all, j.Work)
	}
}

// Prices rise with promises until a job with the same worth is refused, and the refusal contains its cost.
func TestPricesRiseUntilJobsAreRefused(t *testing.T) {
	t.Parallel()
	c := New(4, [][]float64{{4}}, Prices{Low: []float64{1}, High: []float64{100}})
	j := Job{Work: 4, Most: 1, Worker: []float64{1}, Utility: func(int) float64 { return 60 }}
	admitted := 0
	for range 6 {
		before := c.Price(0, 0, 0)
		o := c.Offer(j)
		if !o.Admitted {
			if admitted != 3 || math.Abs(o.Cost-126.49) > .01 || o.Worth != 60 {
				t.Errorf("after %d: %+v", admitted, o)
			}
			return
		}
		if least, most := Workers(o.Schedule); least != 1 || most != 1 || o.End != 3 {
			t.Errorf("%+v", o)
		}
		c.Promise(j.Worker, o.Schedule)
		admitted++
		if c.Price(0, 0, 0) <= before {
			t.Error("the price did not rise")
		}
	}
	t.Errorf("%d admitted", admitted)
}

// With parameter servers, too, the offer has the payoff of the best of all numbers of workers in every slot.
func TestOffersWithParameterServersAreExact(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		slots := rapid.IntRange(1, 4).Draw(t, "slots")
		room := func(what string) [][]float64 {
			capacity := make([][]float64, rapid.IntRange(1, 3).Draw(t, what))
			for h := range capacity {
				capacity[h] = []float64{float64(rapid.IntRange(0, 4).Draw(t, what+" cores"))}
			}
			return capacity
		}
		c := New(slots, room("servers"), Prices{Low: []float64{0.5}, High: []float64{8}})
		c.UseServers(room("parameter servers"), Prices{Low: []float64{0.2}, High: []float64{9}})
		for range 3 {
			j := Job{
				Work: float64(rapid.IntRange(1, 7).Draw(t, "work")), Most: rapid.IntRange(1, 4).Draw(t, "most"), Worker: []float64{1},
				Servers: &Servers{Each: []float64{1}, PerWorker: rapid.SampledFrom([]float64{.2, .5, .7, 1}).Draw(t, "per worker")},
			}
			worth := rapid.Float64Range(0, 60).Draw(t, "worth")
			j.Utility = func(late int) float64 { return worth / (1 + math.Exp(float64(late)-2)) }
			got, want := c.Offer(j), bruteWithServers(c, &j, 0, int(j.Work), 0)
			if math.IsInf(want, -1) != (got.Schedule == nil) || !math.IsInf(want, -1) && math.Abs(got.Worth-got.Cost-want) > 1e-9 {
				t.Fatalf("payoff %g, the best is %g: %+v", got.Worth-got.Cost, want, got)
			}
			if !got.Admitted {
				continue
			}
			checkSchedule(t, c, j, got)
			c.Promise(j.Worker, got.Schedule)
			c.Servers().Promise(j.Servers.Each, got.Servers)
		}
	})
}

// bruteWithServers tries every number of workers in each slot from one on, each with the cheapest servers found by
// brute force.
func bruteWithServers(c *Cluster, j *Job, slot, left int, paid float64) float64 {
	best := math.Inf(-1)
	if slot == len(c.used) {
		return best
	}
	for n := range min(left, j.Most) + 1 {
		z := int(math.Ceil(float64(n)*j.Servers.PerWorker - 1e-9))
		cost := paid + spread(c, *j, slot, 0, n) + spread(c.servers, Job{Worker: j.Servers.Each}, slot, 0, z)
		if n == left {
			best = max(best, j.Utility(slot)-cost)
			continue
		}
		best = max(best, bruteWithServers(c, j, slot+1, left-n, cost))
	}
	return best
}

func TestNeeds(t *testing.T) {
	t.Parallel()
	if got := Needs(10, 4, 5, 0.03); got != 6 {
		t.Errorf("200 mini-batches of 0.03 slots are %g", got)
	}
}

// BenchmarkOffer offers a job of 100 chunks and 200 epochs on 100 servers and 300 slots with existing promises.
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
		Work: Needs(200, 100, 10, 0.1), Most: 100, Worker: []float64{1, 4, 16},
		Utility: func(late int) float64 { return 1e5 / (1 + math.Exp(0.1*float64(late-200))) },
	}
	for b.Loop() {
		if o := c.Offer(j); len(o.Schedule) == 0 {
			b.Fatal("no schedule")
		}
	}
}
