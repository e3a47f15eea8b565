package baseline_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/lab/policy/baseline"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	simple "github.com/outbid-dev/outbid/orchestrator/policy/baseline"
	"github.com/outbid-dev/outbid/orchestrator/policy/policytest"
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

// ends lists when each sweep's only trial ended, in whole seconds.
func ends(s *stagetest.Stage) string {
	text := ""
	for _, a := range s.Apps {
		text += fmt.Sprintf("%s %.0f ", a.ID, s.Ended[policy.JobName{App: a.ID}].Seconds())
	}
	return text
}

func runs(j *policy.Job, node int, devices ...int) {
	j.Gangs, j.Queued = []cluster.Gang{{{Node: node, Devices: devices}}}, time.Time{}
}

func optionsOf(t *testing.T, pairs ...string) *policy.Options {
	t.Helper()
	o, err := policy.ParseOptions(pairs)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// Three jobs on two GPUs, A on 2 for 6 s, B on 2 for 2 s, C on 1 for 8 s, need 12, 4 and 8 GPU-seconds.
func TestSRSFOrdersByService(t *testing.T) {
	t.Parallel()
	s := one(2)
	s.Job(s.App("A", "x"), 2, 2, 12)
	s.Job(s.App("B", "x"), 2, 2, 4)
	s.Job(s.App("C", "x"), 1, 1, 8)
	s.Run(t, baseline.SRSF{}, time.Hour)
	if got := ends(s); got != "A 16 B 2 C 10 " {
		t.Errorf("ended at %q", got)
	}
}

func TestYARNSharesByQueue(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		policy           baseline.YARN
		jobsOfA, jobsOfB int
		want             string
	}{
		"equal shares":                  {baseline.YARN{Borrow: true}, 8, 8, "abababab"},
		"three to one":                  {baseline.YARN{Borrow: true, Shares: map[string]float64{"a": 3}}, 8, 8, "abaaabaa"},
		"what others leave may be used": {baseline.YARN{Borrow: true}, 1, 8, "abbbbbbb"},
		"static quotas":                 {baseline.YARN{}, 1, 8, "abbbb"},
		"quotas of named tenants that are not there": {
			baseline.YARN{Shares: map[string]float64{"c": 2}}, 8, 8, "abab",
		},
	} {
		s := one(8)
		a, b := s.App("a", "a"), s.App("b", "b")
		for range tc.jobsOfA {
			s.Job(a, 1, 1, 10)
		}
		for range tc.jobsOfB {
			s.Job(b, 1, 1, 10)
		}
		if got := granted(s.Decide(t, tc.policy)); got != tc.want {
			t.Errorf("%s: granted %q, want %q", name, got, tc.want)
		}
	}
}

func TestBinPackAndSpreadChooseNodes(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		policy policy.Policy
		want   int
	}{{baseline.BinPack{}, 1}, {baseline.Spread{}, 0}} {
		s := stagetest.New(stagetest.Nodes("gpu", 2, 4, 4)...)
		a := s.App("a", "x")
		runs(s.Job(a, 1, 1, 10), 1, 0)
		s.Job(a, 1, 1, 10)
		if p := s.Decide(t, tc.policy); len(p.Grants) != 1 || p.Grants[0].Gang[0].Node != tc.want {
			t.Errorf("%s granted %+v, want node %d", tc.policy.Name(), p.Grants, tc.want)
		}
	}
}

func TestProportional(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		asks []int
		want []int
	}{{[]int{8}, []int{8}}, {[]int{8, 8}, []int{4, 4}}, {[]int{6, 2, 2}, []int{4, 1, 1}}, {[]int{2, 2}, []int{2, 2}}} {
		s := one(8)
		a := s.App("a", "x")
		for _, n := range tc.asks {
			s.Job(a, 1, n, 10)
		}
		s.Decide(t, baseline.Proportional{})
		for i, n := range tc.want {
			if got := a.Jobs[i].Gang().Size(); got != n {
				t.Errorf("of %v, job %d has %d devices, want %d", tc.asks, i, got, n)
			}
		}
	}
}

func TestGandivaServesTheHighestPreferenceFirst(t *testing.T) {
	t.Parallel()
	s := stagetest.New(stagetest.Nodes("gpu", 2, 2, 2)...)
	s.Job(s.App("A", "x"), 3, 3, 10).Demand.MultiNode = true // 1/S = 1/1.1 over two nodes
	s.Job(s.App("B", "x"), 2, 2, 10)
	if got := granted(s.Decide(t, &baseline.Gandiva{})); got != "B" {
		t.Errorf("granted %q", got)
	}
}

// A trial on two nodes moves to one once no trial waits; its new place is held back from later trials.
func TestGandivaMigrates(t *testing.T) {
	t.Parallel()
	s := stagetest.New(stagetest.Nodes("gpu", 3, 2, 2)...)
	s.Stop = 3 * time.Second
	j := s.Job(s.App("A", "x"), 2, 2, 1000)
	j.Demand.MultiNode, j.Queued, j.Granted, j.Reported = true, time.Time{}, s.Now, s.Now
	j.Gangs = []cluster.Gang{{{Node: 0, Devices: []int{0}}, {Node: 1, Devices: []int{0}}}}
	p := &baseline.Gandiva{Migrate: true, Gain: 1.05}
	if plan := s.Decide(t, p); len(plan.Revokes) != 1 {
		t.Fatalf("revoked %+v", plan.Revokes)
	}
	s.Job(s.App("B", "x"), 2, 2, 1000)
	if plan := s.Decide(t, p); len(plan.Grants) != 0 {
		t.Errorf("%v got the place that A is to have", plan.Grants[0].Job.Name())
	}
	s.Run(t, p, 10*time.Second)
	if len(j.Gang()) != 1 || s.Revoked != 1 {
		t.Errorf("A is at %v after %d revokes", j.Gang(), s.Revoked)
	}
}

// Two jobs of 30 s take turns of 10 s on one device; without slices the first keeps it until it ends.
func TestGandivaTakesTurnsWithSlices(t *testing.T) {
	t.Parallel()
	for want, p := range map[string]policy.Policy{
		"A 50 B 60 ": baseline.NewGandivaSliced(optionsOf(t, "slice=10s")),
		"A 30 B 60 ": baseline.NewGandiva(optionsOf(t)),
	} {
		s := one(1)
		s.Job(s.App("A", "x"), 1, 1, 30)
		s.Job(s.App("B", "x"), 1, 1, 30)
		s.Run(t, p, time.Hour)
		if got := ends(s); got != want {
			t.Errorf("%s: ended at %q, want %q", p.Name(), got, want)
		}
	}
}

// The lab tests every policy with default options; this tests others.
func TestOptionsKeepTheRules(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		make   func() policy.Policy
		traits []policytest.Trait
	}{
		"srsf by app": {make: func() policy.Policy { return baseline.SRSF{Unit: simple.ByApp} }},
		"yarn-cs with quotas": {
			make:   func() policy.Policy { return baseline.YARN{Shares: map[string]float64{"x": 3}} },
			traits: []policytest.Trait{policytest.MayRefuse}, // larger than its quota
		},
		"gandiva that moves for little": {make: func() policy.Policy { return &baseline.Gandiva{Migrate: true, Gain: 1.01} }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			policytest.Run(t, tc.make, tc.traits...)
		})
	}
}
