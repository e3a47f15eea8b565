package hadar

import (
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/stagetest"
)

// every tries all subsets of the jobs from i on, without pruning, and returns the largest sum of payoffs.
func (s *search) every(i int) float64 {
	if i == len(s.jobs) {
		return 0
	}
	most := s.every(i + 1)
	if a, ok := s.find(s.jobs[i], true); ok {
		mark := s.free.Mark()
		s.free.Take(a.gang, s.jobs[i].job.Demand)
		most = max(most, a.payoff+s.every(i+1))
		s.free.Rollback(mark)
	}
	return most
}

// A pruned branch is never better than the result.
func TestTheProgramFindsTheLargestSum(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := stagetest.New(append(stagetest.Nodes("v100", rapid.IntRange(1, 2).Draw(t, "fast"), 2, 2),
			stagetest.Nodes("k80", rapid.IntRange(0, 2).Draw(t, "slow"), 3, 3)...)...)
		for i := range rapid.IntRange(1, 7).Draw(t, "jobs") {
			a := s.App(fmt.Sprint("a", i), "t")
			rate := rapid.Float64Range(0.1, 10).Draw(t, "rate")
			a.Speeds = &cluster.Speeds{Measured: []cluster.Speed{
				{Type: "v100", Devices: 1, Rate: rate}, {Type: "k80", Devices: 1, Rate: rate * rapid.Float64Range(0.1, 1).Draw(t, "slower")},
			}}
			n := rapid.IntRange(1, 3).Draw(t, "devices")
			j := s.Job(a, n, n+rapid.IntRange(0, 1).Draw(t, "more"), rapid.Int64Range(1, 10_000).Draw(t, "steps"))
			j.Demand.Mixed, j.Demand.MultiNode = rapid.Bool().Draw(t, "mixed"), rapid.Bool().Draw(t, "spread")
		}
		v := s.View()
		p, _ := New(policy.NewOptions(nil)).(*Policy)
		r := p.newRound(v, policy.Extend(v), v.Waiting())
		w := r.search(r.queue)
		free := r.free.FreeDevices()
		w.decideFrom(0, 0)
		sum := 0.0
		for _, a := range w.best {
			if a != nil {
				sum += a.payoff
			}
		}
		most := w.every(0)
		if math.Abs(sum-w.most) > 1e-9*w.most || math.Abs(most-w.most) > 1e-9*most {
			t.Fatalf("it found %v, whose picks add up to %v; the largest is %v", w.most, sum, most)
		}
		if r.free.FreeDevices() != free {
			t.Fatalf("%d devices were free before, %d after", free, r.free.FreeDevices())
		}
	})
}

// The lowest price admits any job, and the highest only the best one (eqs. 6 and 7).
func TestPricesAdmitAnyJobAtFirst(t *testing.T) {
	t.Parallel()
	s := stagetest.New(stagetest.Nodes("v100", 2, 4, 4)...)
	for i, steps := range []int64{10, 1000, 100_000} {
		a := s.App(fmt.Sprint("a", i), "t")
		a.Speeds = &cluster.Speeds{Measured: []cluster.Speed{{Type: "v100", Devices: 1, Rate: 2}}}
		s.Job(a, 1, 1, steps)
	}
	v := s.View()
	p, _ := New(policy.NewOptions(nil)).(*Policy)
	r := p.newRound(v, policy.Extend(v), v.Waiting())
	if len(r.queue) != 3 || r.prices[0].High != 2 || r.prices[0].Low <= 0 || r.prices[0].Low > r.prices[0].High/4 {
		t.Errorf("%d jobs are in the queue, at prices %+v", len(r.queue), r.prices[0])
	}
}

// BenchmarkRound begins a round with many jobs on the paper's cluster: 15 nodes, 20 devices of each of three types.
func BenchmarkRound(b *testing.B) {
	for _, jobs := range []int{32, 480, 2048, 10_000} {
		b.Run(fmt.Sprint(jobs), func(b *testing.B) {
			var nodes []cluster.Node
			for _, kind := range []string{"v100", "p100", "k80"} {
				nodes = append(nodes, stagetest.Nodes(kind, 5, 4, 4)...)
			}
			s := stagetest.New(nodes...)
			for i := range jobs {
				s.Now = s.Now.Add(time.Second)
				a := s.App(fmt.Sprint("a", i), "t")
				rate := 1 + float64(i*7%13)
				a.Speeds = &cluster.Speeds{Measured: []cluster.Speed{
					{Type: "v100", Devices: 1, Rate: 10 * rate}, {Type: "p100", Devices: 1, Rate: 4 * rate}, {Type: "k80", Devices: 1, Rate: rate},
				}}
				n := 1 << (i * 5 % 3)
				j := s.Job(a, n, n, 1000+int64(i*7919%100_000))
				j.Demand.Mixed, j.Demand.MultiNode = true, true
			}
			v := s.View()
			for b.Loop() {
				New(policy.NewOptions(nil)).Decide(v)
			}
		})
	}
}
