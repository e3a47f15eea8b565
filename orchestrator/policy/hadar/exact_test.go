package hadar

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/stagetest"
)

// exact returns the largest sum of payoffs of the jobs from i on if each may have any devices, not only those that
// FIND_ALLOC considers.
func (s *search) exact(i int) float64 {
	if i == len(s.jobs) {
		return 0
	}
	most, e := s.exact(i+1), s.jobs[i]
	var pools []pool
	for node := range s.capacity {
		for k, kind := range s.types {
			if n := s.free.FreeAt(node, kind); n > 0 && e.rate[k] > 0 {
				pools = append(pools, pool{node: node, kind: k, free: n, price: s.priceOf(node, k)})
			}
		}
	}
	d := e.job.Demand
	for n := max(1, d.Min); n <= wants(d); n++ {
		eachTaking(pools, n, nil, func(parts []pool) {
			kinds, nodes := map[int]bool{}, map[int]bool{}
			for _, p := range parts {
				kinds[p.kind], nodes[p.node] = true, true
			}
			if len(kinds) > 1 && !d.Mixed || len(nodes) > 1 && !d.MultiNode {
				return
			}
			a, ok := s.allocate(e, append([]pool(nil), parts...))
			if !ok || a.payoff <= 0 {
				return
			}
			mark := s.free.Mark()
			s.free.Take(a.gang, d)
			most = max(most, a.payoff+s.exact(i+1))
			s.free.Rollback(mark)
		})
	}
	return most
}

// eachTaking calls f with each way to take n devices.
func eachTaking(pools []pool, n int, taken []pool, f func([]pool)) {
	if n == 0 {
		f(taken)
		return
	}
	if len(pools) == 0 {
		return
	}
	for k := range min(n, pools[0].free) + 1 {
		next := taken
		if k > 0 {
			p := pools[0]
			p.free = k
			next = append(taken[:len(taken):len(taken)], p)
		}
		eachTaking(pools[1:], n-k, next, f)
	}
}

// The best sum over the few allocations that the program considers is close to that of an exact solver over all of
// them.
func TestProgramIsNearOptimum(t *testing.T) {
	t.Parallel()
	cases, sum, worst := 0, 0.0, 1.0
	rapid.Check(t, func(t *rapid.T) {
		s := stagetest.New(append(stagetest.Nodes("v100", rapid.IntRange(1, 2).Draw(t, "fast"), 2, 2),
			stagetest.Nodes("k80", rapid.IntRange(1, 2).Draw(t, "slow"), 2, 2)...)...)
		for i := range rapid.IntRange(1, 4).Draw(t, "jobs") {
			a := s.App(fmt.Sprint("a", i), "t")
			rate := rapid.Float64Range(0.5, 5).Draw(t, "rate")
			a.Speeds = &cluster.Speeds{Measured: []cluster.Speed{
				{Type: "v100", Devices: 1, Rate: rate}, {Type: "k80", Devices: 1, Rate: rate * rapid.Float64Range(0.1, 1).Draw(t, "slower")},
			}}
			n := rapid.IntRange(1, 3).Draw(t, "devices")
			j := s.Job(a, n, n, rapid.Int64Range(100, 10_000).Draw(t, "steps"))
			j.Demand.Mixed, j.Demand.MultiNode = rapid.Bool().Draw(t, "mixed"), rapid.Bool().Draw(t, "spread")
		}
		v := s.View()
		p, _ := New(policy.NewOptions(nil)).(*Policy)
		r := p.newRound(v, policy.Extend(v), v.Waiting())
		w := r.search(r.queue)
		if len(w.jobs) == 0 {
			return
		}
		w.decideFrom(0, 0)
		best := w.exact(0)
		if w.most > best*(1+1e-9) {
			t.Fatalf("it found %v, more than the optimum, %v", w.most, best)
		}
		cases, sum, worst = cases+1, sum+w.most/best, min(worst, w.most/best)
	})
	t.Logf("%d cases: %.4f of the optimum on average, %.3f at worst", cases, sum/float64(cases), worst)
	if cases > 20 && sum/float64(cases) < .95 {
		t.Errorf("%d cases: %.4f of the optimum on average, %.3f at worst", cases, sum/float64(cases), worst)
	}
}
