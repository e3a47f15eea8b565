package allox_test

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/lab/policy/allox"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/stagetest"
)

func create(t testing.TB, options map[string]string) policy.Policy {
	t.Helper()
	o := policy.NewOptions(options)
	p := allox.New(o)
	if err := o.Err(); err != nil {
		t.Fatal(err)
	}
	return p
}

// mixed returns a stage with devices of two types, one per node.
func mixed(fast, slow int) *stagetest.Stage {
	return stagetest.New(append(stagetest.Nodes("k80", slow, 1, 1), stagetest.Nodes("v100", fast, 1, 1)...)...)
}

// job adds a job that takes the given seconds on each type.
func job(s *stagetest.Stage, id, tenant string, fast, slow float64) *policy.Job {
	a := s.App(id, tenant)
	a.Speeds = &cluster.Speeds{Measured: []cluster.Speed{
		{Type: "v100", Devices: 1, Rate: 1000 / fast}, {Type: "k80", Devices: 1, Rate: 1000 / slow},
	}}
	return s.Job(a, 1, 1, 1000)
}

// The paper's motivation (section 2): each job is placed where it is relatively fast, although both prefer the fast
// device.
func TestJobsGoWhereTheyGainMost(t *testing.T) {
	t.Parallel()
	s := mixed(1, 1)
	much, little := job(s, "much", "t", 10, 100), job(s, "little", "t", 10, 12)
	s.Decide(t, create(t, nil))
	if !much.Running() || !little.Running() || cluster.TypeOf(s.Nodes, much.Gang()) != "v100" {
		t.Errorf("they run on %v and %v", much.Gang(), little.Gang())
	}
}

// A slow device stays free if the queue for the fast one ends sooner.
func TestAJobWaitsForTheFasterDevice(t *testing.T) {
	t.Parallel()
	s := mixed(1, 1)
	first, second := job(s, "a", "t", 10, 1000), job(s, "b", "t", 20, 1000)
	p := create(t, map[string]string{"alpha": "1"})
	s.Decide(t, p)
	if !first.Running() || second.Running() {
		t.Fatalf("they run on %v and %v", first.Gang(), second.Gang())
	}
	s.Run(t, p, time.Minute)
	if end := s.Ended[second.Name()]; end < 29*time.Second || end > 31*time.Second {
		t.Errorf("the second ended after %s", end)
	}
}

// Jobs that are all present at the start end in the least mean time, compared with brute force.
func TestMeanCompletionTimeIsTheLeast(t *testing.T) {
	t.Parallel()
	p := create(t, map[string]string{"alpha": "1"})
	rapid.Check(t, func(t *rapid.T) {
		s := mixed(rapid.IntRange(1, 2).Draw(t, "fast"), 1)
		jobs := rapid.IntRange(1, 4).Draw(t, "jobs")
		times := make([][]float64, jobs)
		for i := range times {
			fast, slow := rapid.IntRange(1, 50).Draw(t, "fast"), rapid.IntRange(1, 90).Draw(t, "slow")
			job(s, string(rune('a'+i)), "t", float64(fast*100), float64(slow*100))
			times[i] = []float64{float64(slow * 100)}
			for range len(s.Nodes) - 1 {
				times[i] = append(times[i], float64(fast*100))
			}
		}
		_, want, err := allox.Schedule(times)
		if err != nil {
			t.Fatal(err)
		}
		s.Run(t, p, 1000*time.Hour)
		sum := 0.0
		for _, end := range s.Ended {
			sum += end.Seconds()
		}
		if len(s.Ended) != jobs || math.Abs(sum-want) > 0.1 {
			t.Fatalf("completion times sum to %g s, the best is %g", sum, want)
		}
	})
}

func TestFairnessFilter(t *testing.T) {
	t.Parallel()
	s := mixed(1, 0)
	for i := range 10 {
		s.Now = s.Now.Add(time.Second)
		job(s, string(rune('a'+i)), "t", float64(100-i), 1e6)
	}
	first, shortest := s.Apps[0].Jobs[0], s.Apps[9].Jobs[0]
	s.Decide(t, create(t, map[string]string{"alpha": "0"}))
	if !first.Running() {
		t.Error("alpha=0 is not first come, first served on one device")
	}
	first.Gangs, first.Queued = nil, s.Now.Add(-time.Hour)
	s.Decide(t, create(t, map[string]string{"alpha": "1"}))
	if !shortest.Running() {
		t.Error("alpha=1 is not the shortest first on one device")
	}
	shortest.Gangs, shortest.Queued = nil, s.Now
	p := create(t, map[string]string{"alpha": "0", "fair": "tenant"})
	s.Decide(t, p)
	if !first.Running() {
		t.Error("fair=tenant does not begin with the longest waiting job although no tenant has had anything")
	}
	s.Apps[3].Tenant, s.Now = "poor", s.Now.Add(time.Minute)
	first.Gangs, first.Queued = nil, s.Now.Add(-time.Hour)
	s.Decide(t, p)
	if !s.Apps[3].Jobs[0].Running() {
		t.Error("fair=tenant does not begin with the tenant that had least")
	}
}

func TestGangsEnd(t *testing.T) {
	t.Parallel()
	s := stagetest.New(append(stagetest.Nodes("k80", 2, 4, 4), stagetest.Nodes("v100", 2, 4, 4)...)...)
	a := s.App("a", "t")
	for i := range 30 {
		s.Job(a, 1+i%4, 4, int64(100+i*37%500))
	}
	s.Run(t, create(t, nil), 100*time.Hour)
	if len(s.Ended) != 30 || s.Revoked > 0 {
		t.Errorf("%d of 30 jobs ended, %d stops", len(s.Ended), s.Revoked)
	}
}

func BenchmarkDecide(b *testing.B) {
	s := stagetest.New(append(stagetest.Nodes("k80", 100, 8, 4), stagetest.Nodes("v100", 110, 8, 4)...)...)
	for i := range 2000 {
		j := job(s, "a", "t", float64(100+i*7919%1000), float64(300+i*104729%3000))
		if i < 1660 {
			if g, ok := s.View().Free.Best(j.Demand); ok {
				j.Gangs, j.Granted, j.Reported = []cluster.Gang{g}, s.Now, s.Now
			}
		}
	}
	p := create(b, nil)
	v := s.View()
	for b.Loop() {
		p.Decide(v)
	}
}
