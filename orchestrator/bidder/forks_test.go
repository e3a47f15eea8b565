package bidder_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/outbid-dev/outbid/orchestrator/bidder"
	"github.com/outbid-dev/outbid/orchestrator/cluster"
)

// rates of a model on types that do four, two and one steps a second.
var rates = map[string]float64{"v100": 4, "p100": 2, "k80": 1}

// forkable returns a sweep of trials with the given remaining steps, with least to most forks each, on a
// cluster of one device of each type.
func forkable(least, most int, left ...float64) *bidder.AppState {
	s := &bidder.AppState{
		App: "forkable", Tuner: "random", MeanApps: 1, Demand: cluster.Demand{Min: 1, Max: 1}, Forks: most, LeastForks: least,
		Speeds: &cluster.Speeds{},
	}
	for _, kind := range []string{"k80", "p100", "v100"} {
		s.Cluster = append(s.Cluster, bidder.Stock{Type: kind, Devices: 1, Machines: 1})
		s.Speeds.Measured = append(s.Speeds.Measured, cluster.Speed{Type: kind, Devices: 1, Rate: rates[kind]})
	}
	for i, steps := range left {
		s.Jobs = append(s.Jobs, bidder.Job{
			Trial: int32(i), Total: steps, Min: 1, Max: 1, Forks: most, LeastForks: least, Speeds: s.Speeds,
		})
	}
	return s
}

// machines returns an offer of each machines of each type, with one device each.
func machines(each int, kinds ...string) *bidder.Offer {
	o := &bidder.Offer{}
	for i := range each {
		for _, kind := range kinds {
			o.Lots = append(o.Lots, bidder.Lot{Node: fmt.Sprint(kind, i), Type: kind, Free: 1})
		}
	}
	return o
}

// A mixed bundle has the sum of the rates of the forks that train on it, and the longest trials use it first.
func TestAMixedBundleIsWorthTheSumOfItsForks(t *testing.T) {
	t.Parallel()
	one := func(left float64) func(sum float64, gangs int) float64 {
		return func(sum float64, _ int) float64 { return left / sum }
	}
	for name, tc := range map[string]struct {
		s *bidder.AppState
		// took returns how long a bundle takes whose gangs have sum as their total rate; best is the largest bundle.
		took func(sum float64, gangs int) float64
		best string
	}{
		"one job on all": {forkable(1, 9, 700), one(700), "k80 p100 v100"},
		"two jobs":       {forkable(1, 9, 700, 700), one(1400), "k80 p100 v100"},
		"on two at most": {forkable(1, 2, 700), one(700), "p100 v100"},
		"three at least": {forkable(3, 9, 700), one(700), "k80 p100 v100"},
		"one that may not be forked": {func() *bidder.AppState {
			s := forkable(1, 9, 700)
			s.Jobs[0].Forks = 0
			return s
		}(), one(700), "v100"},
	} {
		got := table(t, machines(1, "v100", "p100", "k80"), tc.s)
		best, least := "", math.Inf(1)
		for _, r := range got.Rows {
			sum, gangs := 0.0, 0
			var kinds []string
			for _, g := range r.Gangs {
				sum, gangs = sum+float64(g.Count)*rates[g.Type], gangs+g.Count
				kinds = append(kinds, g.Type)
			}
			if want := tc.took(sum, gangs); math.Abs(r.Rho*got.Ideal-want) > 1e-9*want {
				t.Errorf("%s: on %v it takes %v, want %v", name, kinds, r.Rho*got.Ideal, want)
			}
			if slices.Sort(kinds); r.Rho < least {
				best, least = fmt.Sprint(kinds), r.Rho
			}
			if name == "three at least" && gangs == 2 {
				t.Errorf("%s: it bids for %v", name, kinds)
			}
		}
		if best != "["+tc.best+"]" {
			t.Errorf("%s: the best bundle is %s, want [%s]", name, best, tc.best)
		}
	}
}

// Types without measurements count with their estimates (equation 10).
func TestABundleIsWorthWhatIsEstimatedOfIt(t *testing.T) {
	t.Parallel()
	s := forkable(1, 9, 700)
	s.Speeds.Measured = []cluster.Speed{{Type: "p100", Devices: 1, Rate: 2}}
	s.Speeds.Estimated = map[string]float64{"v100": 1, "p100": .5, "k80": .25}
	got := table(t, machines(1, "v100", "p100", "k80"), s)
	least := got.Rows[0].Rho
	for _, r := range got.Rows {
		least = min(least, r.Rho)
	}
	if took := least * got.Ideal; math.Abs(took-100) > 1e-9 || math.Abs(got.Ideal-100) > 1e-9 {
		t.Errorf("on all it takes %v s, alone %v s, want 100 s", took, got.Ideal)
	}
}

// T_id counts the forks that a sweep would have alone: as many as there are machines, each on a different one.
func TestIdealTimeCountsForks(t *testing.T) {
	t.Parallel()
	big := forkable(1, 9, 700)
	big.Cluster[2].Devices = 4 // of one machine
	for name, tc := range map[string]struct {
		s    *bidder.AppState
		want float64
	}{
		"forked over all":               {forkable(1, 9, 700), 100},
		"not forked":                    {forkable(0, 0, 700), 700. / 4},
		"two forks at most":             {forkable(1, 2, 700), 700. / 6},
		"more than there are machines":  {forkable(4, 9, 700), 700. / 4},
		"one of a machine for each job": {big, 100},
		"two jobs, one each":            {forkable(0, 0, 700, 700), 1400. / 6},
		"two jobs, forked":              {forkable(1, 9, 700, 700), 200},
	} {
		if got := bidder.Ideal(tc.s); math.Abs(got-tc.want) > 1e-9 {
			t.Errorf("%s: T_id is %v s, want %v", name, got, tc.want)
		}
	}
}

// Tables of sweeps with forks have a limited size and fit the offer. No machine has more gangs of a row than there
// are trials. A row is worth no more than the sum of its rates, and a bundle that contains another is worth no less.
func TestTablesOfForks(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		o, hosts, all := &bidder.Offer{}, map[string]int{}, map[string]int{}
		least, most := rapid.IntRange(1, 3).Draw(t, "least"), rapid.IntRange(2, 20).Draw(t, "most")
		var left []float64
		for range rapid.IntRange(1, 5).Draw(t, "jobs") {
			left = append(left, rapid.Float64Range(1, 1000).Draw(t, "left"))
		}
		for i := range rapid.IntRange(1, 8).Draw(t, "machines") {
			l := bidder.Lot{
				Node: fmt.Sprint("n", i), Type: rapid.SampledFrom([]string{"v100", "p100", "k80"}).Draw(t, "type"),
				Free: rapid.IntRange(1, 4).Draw(t, "free"),
			}
			o.Lots = append(o.Lots, l)
			hosts[l.Type] += min(l.Free, len(left))
			all[l.Type]++
		}
		s := forkable(least, most, left...)
		for i := range s.Cluster {
			c := &s.Cluster[i]
			c.Machines, c.Devices = max(1, all[c.Type]), max(1, 4*all[c.Type])
		}
		tables, err := bidder.BuiltIn{}.Bid(o, []*bidder.AppState{s})
		if err != nil {
			t.Fatal(err)
		}
		got := tables[0]
		if len(got.Rows) == 0 || len(got.Rows) > bidder.MaxRows {
			t.Fatalf("%d rows", len(got.Rows))
		}
		sum := 0.0
		for _, l := range left {
			sum += l
		}
		for _, r := range got.Rows {
			rate, gangs := 0.0, 0
			for _, g := range r.Gangs {
				if g.Count > hosts[g.Type] {
					t.Fatalf("%+v on machines that have room for %v of %d jobs", r.Gangs, hosts, len(left))
				}
				rate, gangs = rate+float64(g.Count)*rates[g.Type], gangs+g.Count
			}
			if err := o.Check(s, r.Gangs); err != nil || gangs > most*len(left) {
				t.Fatalf("%+v for %d jobs: %v", r.Gangs, len(left), err)
			}
			if took := r.Rho * got.Ideal; took < sum/rate-1e-6 {
				t.Fatalf("on %+v it takes %v s, and all of it at its rate %v s", r.Gangs, took, sum/rate)
			}
			for _, more := range got.Rows {
				if holds(more.Gangs, r.Gangs) && more.Rho > r.Rho*(1+1e-9) && least == 1 {
					t.Fatalf("rho of %+v is %v, of %+v %v", r.Gangs, r.Rho, more.Gangs, more.Rho)
				}
			}
		}
	})
}

// holds reports whether a row contains another.
func holds(more, less []bidder.Gangs) bool {
	count := map[string]int{}
	for _, g := range more {
		count[g.Type] += g.Count
	}
	for _, g := range less {
		if count[g.Type] -= g.Count; count[g.Type] < 0 {
			return false
		}
	}
	return true
}
