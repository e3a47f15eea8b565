package baseline_test

import (
	"slices"
	"testing"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/baseline"
	"github.com/outbid-dev/outbid/orchestrator/policy/stagetest"
)

// one returns a stage with a single node.
func one(devices int) *stagetest.Stage {
	return stagetest.New(stagetest.Nodes("gpu", 1, devices, devices)...)
}

// granted lists the sweeps in the order of their grants.
func granted(p policy.Plan) string {
	text := ""
	for _, g := range p.Grants {
		text += g.Job.App.ID
	}
	return text
}

func runs(j *policy.Job, node int, devices ...int) {
	j.Gangs, j.Queued = []cluster.Gang{{{Node: node, Devices: devices}}}, time.Time{}
}

func TestFIFO(t *testing.T) {
	t.Parallel()
	s := one(3)
	a, b := s.App("a", "x"), s.App("b", "x")
	for i, a := range []*policy.App{b, a, a, b} {
		s.Job(a, 1, 1, 10).Queued = s.Now.Add(time.Duration(10-i) * -time.Minute)
	}
	a.Jobs[1].Queued = a.Jobs[0].Queued.Add(-time.Hour)
	p := s.Decide(t, baseline.FIFO{})
	if got := granted(p); got != "aab" {
		t.Errorf("granted %q, want the first sweep's before the second's", got)
	}
	if first := p.Grants[0].Job; first.Trial != 1 {
		t.Errorf("first came trial %d, which waited less", first.Trial)
	}
	s = one(2)
	s.Job(s.App("a", "x"), 3, 3, 10)
	s.Job(s.App("b", "x"), 1, 1, 10)
	if got := granted(s.Decide(t, baseline.FIFO{})); got != "b" {
		t.Errorf("granted %q, want trials that fit before one that does not", got)
	}
}

// A demand that may span nodes can be placed even if an equal demand that may not has failed.
func TestFIFODoesNotTakeOneDemandForAnother(t *testing.T) {
	t.Parallel()
	s := stagetest.New(stagetest.Nodes("gpu", 2, 1, 1)...)
	s.Job(s.App("a", "x"), 2, 2, 10)
	s.Job(s.App("b", "x"), 2, 2, 10).Demand.MultiNode = true
	if got := granted(s.Decide(t, baseline.FIFO{})); got != "b" {
		t.Errorf("granted %q", got)
	}
}

// The example of the DRF paper (Ghodsi et al., NSDI 2011, section 4.1): 9 CPUs and 18 GB; tasks of A need 1 CPU and 4
// GB, of B 3 CPUs and 1 GB. A runs 3 tasks, B 2.
func TestDRFsOwnExample(t *testing.T) {
	t.Parallel()
	s := one(1000) // more devices than needed
	s.Nodes[0].CPUs, s.Nodes[0].Memory = 9, 18<<30
	a, b := s.App("a", "x"), s.App("b", "x")
	for range 9 {
		d := &s.Job(a, 1, 1, 10).Demand
		d.CPUs, d.Memory = 1, 4<<30
		d = &s.Job(b, 1, 1, 10).Demand
		d.CPUs, d.Memory = 3, 1<<30
	}
	tasks := map[byte]int{}
	for _, app := range []byte(granted(s.Decide(t, baseline.DRF{}))) {
		tasks[app]++
	}
	if tasks['a'] != 3 || tasks['b'] != 2 {
		t.Fatalf("A runs %d tasks and B %d, the paper says 3 and 2", tasks['a'], tasks['b'])
	}
}

// Three sweeps of one tenant share as much as another tenant's single sweep gets.
func TestDRFSharesAmongTenantsFirst(t *testing.T) {
	t.Parallel()
	s := one(6)
	for _, id := range []string{"a", "b", "c", "d"} {
		tenant := "large"
		if id == "d" {
			tenant = "small"
		}
		a := s.App(id, tenant)
		for range 6 {
			s.Job(a, 1, 1, 10)
		}
	}
	got := map[rune]int{}
	for _, app := range granted(s.Decide(t, baseline.DRF{})) {
		got[app]++
	}
	if got['d'] != 3 || got['a'] != 1 || got['b'] != 1 || got['c'] != 1 {
		t.Errorf("granted %v", got)
	}
}

func TestDRFSharesDevices(t *testing.T) {
	t.Parallel()
	stage := func() (s *stagetest.Stage, a *policy.App) {
		s = one(4)
		a, b := s.App("a", "x"), s.App("b", "x")
		for range 4 {
			s.Job(a, 1, 1, 10)
			s.Job(b, 1, 1, 10)
		}
		return s, a
	}
	s, _ := stage()
	if got := granted(s.Decide(t, baseline.DRF{})); got != "abab" {
		t.Errorf("granted %q", got)
	}
	s, a := stage()
	runs(a.Jobs[0], 0, 0)
	runs(a.Jobs[1], 0, 1)
	if got := granted(s.Decide(t, baseline.DRF{})); got != "bb" {
		t.Errorf("granted %q, want the sweep that holds nothing before the one that holds two", got)
	}
}

// With workers a trial gets that many times its minimum, over several nodes, or waits; a trial that wants fewer may be
// placed before one that waits.
func TestFIFOWithWorkers(t *testing.T) {
	t.Parallel()
	s := stagetest.New(stagetest.Nodes("gpu", 2, 4, 4)...)
	for _, most := range []int{20, 20, 2} {
		s.Job(s.App(string(rune('a'+len(s.Apps))), "x"), 1, most, 10).Demand.MultiNode = true
	}
	var sizes []int
	for _, g := range s.Decide(t, baseline.FIFO{Workers: 6}).Grants {
		sizes = append(sizes, g.Gang.Size())
	}
	if !slices.Equal(sizes, []int{6, 2}) {
		t.Errorf("granted %v devices, want six of eight, then two for the trial that wants two", sizes)
	}
}
