package policy_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/stagetest"
)

// ranked gives the latest trials the highest priority.
type ranked struct{}

func (ranked) Name() string              { return "ranked" }
func (ranked) Snapshot() ([]byte, error) { return nil, nil }
func (ranked) Restore([]byte) error      { return nil }
func (ranked) Decide(v *policy.View) policy.Plan {
	jobs := v.Jobs()
	for i, k := 0, len(jobs)-1; i < k; i, k = i+1, k-1 {
		jobs[i], jobs[k] = jobs[k], jobs[i]
	}
	p, inventory := policy.Preempt(v), v.Inventory()
	p.Rank(jobs, func(j *policy.Job) int { return inventory.Wants(j.Demand) }, "ranked")
	return p.Plan("ranked", "ranked lower")
}

func settle(t stagetest.TB, s *stagetest.Stage) {
	for range 4 {
		s.Decide(t, ranked{})
		s.Settle()
	}
}

// A trial moves, or one of lower priority is stopped, only if necessary.
func TestRankMakesRoomWhereItCostsLeast(t *testing.T) {
	t.Parallel()
	s := stagetest.New(stagetest.Nodes("gpu", 2, 4, 4)...)
	a := s.App("a", "t")
	one, three, two := s.Job(a, 1, 1, 1e9), s.Job(a, 3, 3, 1e9), s.Job(a, 2, 2, 1e9)
	settle(t, s)
	if one.Gang()[0].Node == two.Gang()[0].Node {
		t.Fatalf("they lie at %v, %v, %v", one.Gang(), three.Gang(), two.Gang())
	}
	late := s.Job(a, 2, 2, 1e9)
	settle(t, s)
	if s.Revoked != 0 || !late.Running() {
		t.Fatalf("%d stops for a trial that fits without any", s.Revoked)
	}
	whole := s.Job(a, 4, 4, 1e9)
	settle(t, s)
	if !whole.Running() || !late.Running() || !two.Running() || three.Running() || one.Running() {
		t.Errorf("run: whole %v, late %v, two %v, three %v, one %v", whole.Gang(), late.Gang(), two.Gang(), three.Gang(), one.Gang())
	}
}

// The trial with the highest priority that fits on the empty cluster always runs, and so on down the list: no trial
// holds devices on which one of higher priority would fit on some node. When nothing changes, no trial is stopped.
func TestRankKeepsPriorities(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := stagetest.New(stagetest.Nodes("gpu", rapid.IntRange(1, 3).Draw(t, "nodes"), 4, 2)...)
		a := s.App("a", "t")
		for range rapid.IntRange(1, 12).Draw(t, "jobs") {
			n := rapid.IntRange(1, 4).Draw(t, "devices")
			s.Job(a, n, n, 1e9)
			if rapid.Bool().Draw(t, "act") {
				settle(t, s)
			}
		}
		settle(t, s)
		if first := a.Jobs[len(a.Jobs)-1]; !first.Running() {
			t.Fatalf("the first in line waits")
		}
		before := s.Revoked
		settle(t, s)
		if s.Revoked != before {
			t.Fatalf("%d stops though nothing changed", s.Revoked-before)
		}
		for i, j := range a.Jobs {
			if _, fits := s.View().Free.Best(j.Demand); j.Waiting() && fits {
				t.Fatalf("job %d waits though it fits", i)
			}
		}
	})
}

func TestRefillReservesEndingDevices(t *testing.T) {
	t.Parallel()
	s := stagetest.New(stagetest.Nodes("gpu", 1, 4, 4)...)
	a := s.App("a", "t")
	old := s.Job(a, 2, 2, 1e9)
	old.Gangs, old.Ending = []cluster.Gang{{{Node: 0, Devices: []int{0, 1}}}}, true
	first, second := s.Job(a, 3, 3, 1e9), s.Job(a, 2, 2, 1e9)
	p := policy.Refill(s.View())
	p.Fill([]*policy.Job{first, second}, "in line")
	left := p.Free().FreeDevices()
	if plan := p.Plan("", ""); len(plan.Grants) != 0 || left != 1 {
		t.Errorf("granted %+v, %d left, want the ending devices reserved for the first in line", plan.Grants, left)
	}
	old.Ending = false
	p = policy.Refill(s.View())
	p.Evict(old, "make room")
	p.Fill([]*policy.Job{second, first}, "in line")
	if plan := p.Plan("", ""); len(plan.Revokes) != 1 || len(plan.Grants) != 1 || plan.Grants[0].Job != second {
		t.Errorf("planned %+v", plan)
	}
}

func TestInventory(t *testing.T) {
	t.Parallel()
	nodes := append(stagetest.Nodes("a", 2, 4, 2), stagetest.Nodes("b", 1, 2, 1)...)
	nodes[1].Rack = "other"
	s := stagetest.New(nodes...)
	inventory := s.View().Inventory()
	d := cluster.Demand{Min: 1, Max: 16}
	if got := fmt.Sprint(inventory.Types(), inventory.Total(0), inventory.Most(d, 0), inventory.Most(d, 1), inventory.Wants(d)); got != "[a b] 8 4 2 4" {
		t.Errorf("inventory is %s", got)
	}
	d.MultiNode, d.Types = true, []string{"a"}
	if inventory.Most(d, 0) != 8 || inventory.Most(d, 1) != 0 {
		t.Errorf("spread, at most %d and %d", inventory.Most(d, 0), inventory.Most(d, 1))
	}
	for n, want := range map[int]cluster.Locality{2: cluster.SameSlot, 4: cluster.SameMachine, 5: cluster.AcrossRacks} {
		if got := inventory.Locality(0, n); got != want {
			t.Errorf("%d devices are at best in one %s, want %s", n, got, want)
		}
	}
	j := s.Job(s.App("x", "t"), 1, 4, 10)
	if inventory.Rate(j, 0, 4) != 4 || inventory.Rate(j, 0, 0) != 0 {
		t.Error("rates are wrong")
	}
}

func TestWeightsAreRead(t *testing.T) {
	t.Parallel()
	o := policy.NewOptions(map[string]string{"quota": "a=2,b=0.5"})
	if w := o.Weights("quota", ""); o.Err() != nil || len(w) != 2 || w["a"] != 2 || w["b"] != 0.5 {
		t.Errorf("read %v, %v", w, o.Err())
	}
	said := policy.NewOptions(map[string]string{"quota": ""}) // the default, as recorded in a ledger
	if w := said.Weights("quota", ""); said.Err() != nil || w != nil {
		t.Errorf("read %v, %v of nothing", w, said.Err())
	}
	for _, bad := range []string{"a", "a=0", "a=x", "=1", "a=1,a=2", "a=NaN"} {
		o := policy.NewOptions(map[string]string{"quota": bad})
		o.Weights("quota", "")
		if err := o.Err(); err == nil || !strings.Contains(err.Error(), "want tenants and their weights such as") {
			t.Errorf("quota=%s: error was %v", bad, err)
		}
	}
}

func TestJobNamesAreKeys(t *testing.T) {
	t.Parallel()
	in := map[policy.JobName]int{{App: "digits-1", Trial: 17}: 1, {App: "a/b-2", Trial: 0}: 2}
	text, err := json.Marshal(in)
	if err != nil || string(text) != `{"a/b-2/0":2,"digits-1/17":1}` {
		t.Fatalf("%s, %v", text, err)
	}
	var out map[policy.JobName]int
	if err := json.Unmarshal(text, &out); err != nil || len(out) != 2 || out[policy.JobName{App: "digits-1", Trial: 17}] != 1 {
		t.Errorf("%v, %v", out, err)
	}
	if err := new(policy.JobName).UnmarshalText([]byte("digits")); err == nil {
		t.Error("a name without a trial was read")
	}
}

func TestStepsLeftOfUnknownLength(t *testing.T) {
	t.Parallel()
	s := stagetest.New()
	a := s.App("a", "t")
	jobs := []*policy.Job{s.Job(a, 1, 1, 10), s.Job(a, 1, 1, 0), s.Job(a, 1, 1, 30), s.Job(a, 1, 1, 20)}
	v := s.View()
	if got := fmt.Sprint(v.StepsLeftOf(jobs), v.StepsLeftOf(jobs[1:2])); got != "[10 20 30 20] [1]" {
		t.Errorf("left are %s", got)
	}
	before := v.JobsHash()
	v.Now = v.Now.Add(time.Hour)
	if v.JobsHash() != before {
		t.Error("the hash depends on more than the jobs")
	}
	s.Job(a, 1, 1, 1)
	if s.View().JobsHash() == before {
		t.Error("the hash does not see a new job")
	}
}
