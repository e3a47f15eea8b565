package hived

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/stagetest"
)

func create(t testing.TB, options map[string]string) *Policy {
	t.Helper()
	o := policy.NewOptions(options)
	p, ok := New(o).(*Policy)
	if err := o.Err(); err != nil || !ok {
		t.Fatal(err)
	}
	return p
}

// Figure 1 of the paper, simplified: two tenants with half of the nodes each. With quotas alone, one tenant's small
// jobs would spread over the other's nodes and its gang of a whole node could not start. With cells it starts at once.
func TestSharingIsSafe(t *testing.T) {
	t.Parallel()
	s := stagetest.New(stagetest.Nodes("v100", 3, 8, 4)...)
	p := create(t, map[string]string{"quota": "a=2,b=1"})
	a, b := s.App("a", "a"), s.App("b", "b")
	var jobs []*policy.Job
	for range 2 {
		jobs = append(jobs, s.Job(a, 4, 4, 1e9), s.Job(b, 4, 4, 60))
	}
	s.Run(t, p, time.Minute/2)
	if jobs[0].Gang()[0].Node != jobs[2].Gang()[0].Node {
		t.Errorf("two halves of a node lie on two nodes: %v and %v", jobs[0].Gang(), jobs[2].Gang())
	}
	s.Run(t, p, 5*time.Minute)
	first, second := s.Job(a, 8, 8, 1e9), s.Job(b, 8, 8, 1e9)
	s.Run(t, p, time.Second)
	if !first.Running() || !second.Running() || s.Revoked > 0 {
		t.Errorf("gangs within the quota wait: %v, %v; %d stops", first.Gang(), second.Gang(), s.Revoked)
	}
}

func TestOpportunisticJobsGiveWay(t *testing.T) {
	t.Parallel()
	s := stagetest.New(stagetest.Nodes("v100", 2, 4, 2)...)
	s.Stop = 10 * time.Second
	p := create(t, nil)
	a, b := s.App("a", "a"), s.App("b", "b")
	owner := s.Job(b, 1, 1, 30)
	var jobs []*policy.Job
	for range 4 {
		jobs = append(jobs, s.Job(a, 2, 2, 1e9))
	}
	s.Run(t, p, time.Minute)
	for i, j := range jobs {
		if !j.Running() {
			t.Errorf("job %d waits though devices idle", i)
		}
	}
	if owner.Running() || len(s.Ended) != 1 {
		t.Fatal("the other tenant's job did not run")
	}
	late := s.Job(b, 2, 2, 1e9)
	s.Run(t, p, 11*time.Second)
	if !late.Running() || s.Revoked != 1 {
		t.Errorf("the owner holds %v after %d stops", late.Gang(), s.Revoked)
	}
	for i, j := range jobs[:2] {
		if !j.Running() {
			t.Errorf("guaranteed job %d was stopped", i)
		}
	}
	s.Job(b, 2, 2, 1e9)
	s.Run(t, p, time.Hour)
	if s.Revoked != 2 {
		t.Errorf("%d stops for two jobs that came back to their own", s.Revoked)
	}
}

func TestWithoutSpotQuotasAreStrict(t *testing.T) {
	t.Parallel()
	s := stagetest.New(stagetest.Nodes("v100", 2, 4, 4)...)
	p := create(t, map[string]string{"spot": "false"})
	a := s.App("a", "a")
	s.Job(s.App("b", "b"), 1, 1, 10)
	for range 8 {
		s.Job(a, 1, 1, 1e9)
	}
	s.Run(t, p, time.Hour)
	if got := s.Held["a"] / time.Hour.Seconds(); got != 4 {
		t.Errorf("a held %g devices, its quota is 4", got)
	}
}

// Venus: 100 nodes of 8 and 16 tenants: 6 nodes and 2 devices each.
func TestQuotasOfVenus(t *testing.T) {
	t.Parallel()
	var tenants []string
	for i := range 16 {
		tenants = append(tenants, fmt.Sprintf("vc%02d", i))
	}
	l := newLayout(stagetest.Nodes("v100", 100, 8, 4), tenants, slices.Repeat([]float64{1}, len(tenants)))
	for _, tenant := range tenants {
		whole, rest := 0, 0
		for _, at := range l.byTenant[tenant] {
			if n := l.cells[at.cell].parts[at.part].amount; n == 8 {
				whole++
			} else {
				rest += n
			}
		}
		if whole != 6 || rest != 2 {
			t.Errorf("%s has %d nodes and %d devices", tenant, whole, rest)
		}
	}
	if len(l.cells) != 100 {
		t.Errorf("%d cells for 100 nodes", len(l.cells))
	}
}

// For any events, cells are never promised beyond the nodes, guaranteed jobs are never stopped, and a gang that fits
// into the free part of its tenant's virtual cluster holds devices as soon as others have released them.
func TestGuaranteesHold(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := stagetest.New(stagetest.Nodes("v100", rapid.IntRange(1, 5).Draw(t, "nodes"), 4, 2)...)
		o := policy.NewOptions(nil)
		p, _ := New(o).(*Policy)
		tenants := []string{"a", "b", "c"}
		for _, tenant := range tenants {
			s.Job(s.App(tenant, tenant), 1, 1, 5)
		}
		for range rapid.IntRange(1, 25).Draw(t, "arrivals") {
			app := s.Apps[rapid.IntRange(0, 2).Draw(t, "tenant")]
			s.Job(app, rapid.IntRange(1, 4).Draw(t, "devices"), 4, int64(rapid.IntRange(1, 400).Draw(t, "steps")))
			held := map[policy.JobName]bool{}
			for name := range p.s.Jobs {
				held[name] = true
			}
			running := map[*policy.Job]bool{}
			for _, j := range s.View().Jobs() {
				running[j] = j.Running() && held[j.Name()] && !j.Ending
			}
			step(t, s, p)
			for _, j := range s.View().Jobs() {
				if running[j] && j.Ending {
					t.Fatalf("guaranteed job %v was stopped", j.Name())
				}
				if _, guaranteed := p.s.Jobs[j.Name()]; guaranteed && !j.Running() {
					t.Fatalf("guaranteed job %v waits", j.Name())
				}
			}
			for _, c := range p.layout.cells {
				sum := 0
				for _, part := range c.parts {
					sum += part.amount
					if part.used < 0 || part.used > part.amount {
						t.Fatalf("cell %+v is used beyond its size", c)
					}
				}
				if sum > c.class.size {
					t.Fatalf("cell %+v is promised beyond its node", c)
				}
			}
		}
	})
}

// step advances two minutes and ends with a decision in which no job is ending.
func step(t *rapid.T, s *stagetest.Stage, p policy.Policy) {
	s.Run(t, p, 2*time.Minute)
	for range 3 {
		s.Decide(t, p)
		s.Settle()
	}
	s.Decide(t, p)
}
