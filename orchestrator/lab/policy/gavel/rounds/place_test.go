package rounds

import (
	"fmt"
	"testing"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/stagetest"
)

// table is a stage and its jobs, some of them running; their demands may be changed.
type table struct {
	stage *stagetest.Stage
	jobs  []*policy.Job
}

func newTable(nodes ...cluster.Node) *table { return &table{stage: stagetest.New(nodes...)} }

func (b *table) job(least, most int, g cluster.Gang, change ...func(*policy.Job)) {
	j := b.stage.Job(b.stage.App(fmt.Sprintf("app%d", len(b.jobs)), "t"), least, most, 1e9)
	if j.Gangs = []cluster.Gang{g}; len(g) > 0 {
		j.Granted, j.Queued = b.stage.Now, time.Time{}
	}
	for _, c := range change {
		c(j)
	}
	b.jobs = append(b.jobs, j)
}

func spread(j *policy.Job) { j.Demand.MultiNode = true }
func mixed(j *policy.Job)  { j.Demand.MultiNode, j.Demand.Mixed = true, true }

// at returns a gang on one node.
func at(node int, devices ...int) cluster.Gang { return cluster.Gang{{Node: node, Devices: devices}} }

// decide returns the plan of a policy's first round, and the places of its assignments.
func (b *table) decide(t *testing.T, rule string) (plan policy.Plan, assignments map[string]string) {
	t.Helper()
	p := New(rule, policy.NewOptions(nil))
	plan = b.stage.Decide(t, p)
	assignments = map[string]string{}
	v := b.stage.View()
	for i := range p.s.Assignments {
		s := &p.s.Assignments[i]
		g, ok := s.Gang.In(v)
		if !ok {
			t.Fatalf("the assignment of %v is not there: %v", s.Who, s.Gang)
		}
		assignments[s.Who.App] = fmt.Sprint(g, s.Given)
	}
	return plan, assignments
}

func TestPlaces(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		nodes       []cluster.Node
		jobs        func(b *table)
		assignments map[string]string
		revoked     int
	}{
		"running jobs stay, others go to the first node with room": {
			stagetest.Nodes("v100", 2, 2, 2),
			func(b *table) { b.job(1, 1, at(1, 0)); b.job(2, 2, nil); b.job(1, 1, nil) },
			map[string]string{"app0": "[{1 [0]}] true", "app1": "[{0 [0 1]}] true", "app2": "[{1 [1]}] true"},
			0,
		},
		"large jobs come first, and small ones make room": {
			stagetest.Nodes("v100", 2, 2, 2),
			func(b *table) { b.job(1, 1, at(0, 0)); b.job(1, 1, at(1, 0)); b.job(2, 2, nil) },
			map[string]string{"app0": "[{1 [1]}] false", "app1": "[{1 [0]}] true", "app2": "[{0 [0 1]}] false"},
			1,
		},
		"a gang that may spread takes what is free node after node": {
			stagetest.Nodes("v100", 3, 2, 2),
			func(b *table) { b.job(1, 1, at(0, 0)); b.job(1, 1, at(1, 0)); b.job(3, 3, nil, spread) },
			map[string]string{"app0": "[{1 [1]}] false", "app1": "[{2 [0]}] false", "app2": "[{0 [0 1]} {1 [0]}] false"},
			2,
		},
		"a job that needs several types gets leftovers": {
			append(stagetest.Nodes("k80", 1, 2, 2), stagetest.Nodes("v100", 1, 2, 2)...),
			func(b *table) { b.job(3, 3, nil, mixed) },
			map[string]string{"app0": "[{0 [0 1]} {1 [0]}] true"},
			0,
		},
		"an ending job has its turn elsewhere": {
			stagetest.Nodes("v100", 1, 2, 2),
			func(b *table) {
				b.job(1, 1, at(0, 0), func(j *policy.Job) { j.Ending = true })
				b.job(1, 1, nil)
			},
			map[string]string{"app0": "[{0 [0]}] false", "app1": "[{0 [1]}] true"},
			0,
		},
		"a job on a draining node continues": {
			append(draining(stagetest.Nodes("a", 1, 2, 2)), gpus("b", 1)),
			func(b *table) { b.job(1, 1, at(0, 0)); b.job(1, 1, nil) },
			nil, 0,
		},
		"but not if others have their turn on the rest of its gang": {
			append(draining(stagetest.Nodes("a", 1, 1, 1)), gpus("b", 1)),
			func(b *table) {
				b.job(2, 2, cluster.Gang{{Node: 0, Devices: []int{0}}, {Node: 1, Devices: []int{0}}}, spread)
				b.job(1, 1, nil)
			},
			map[string]string{"app1": "[{1 [0]}] false"},
			1,
		},
	} {
		b := newTable(tc.nodes...)
		tc.jobs(b)
		plan, assignments := b.decide(t, "isolated")
		if len(plan.Revokes) != tc.revoked || tc.assignments != nil && fmt.Sprint(assignments) != fmt.Sprint(tc.assignments) {
			t.Errorf("%s: assignments %v, want %v; %d revoked, want %d", name, assignments, tc.assignments, len(plan.Revokes), tc.revoked)
		}
	}
}

func draining(nodes []cluster.Node) []cluster.Node {
	for i := range nodes {
		nodes[i].Draining = true
		for d := range nodes[i].Devices {
			nodes[i].Devices[d].Type = "gpu"
		}
	}
	return nodes
}

// gpus returns one node with n devices.
func gpus(name string, n int) cluster.Node {
	node := stagetest.Nodes("gpu", 1, n, n)[0]
	node.Name = name
	return node
}

// Devices reserved for a job are granted in the middle of a round, as soon as they are free and not before.
func TestReservedAssignmentsAreGivenWithinTheRound(t *testing.T) {
	t.Parallel()
	b := newTable(stagetest.Nodes("v100", 2, 2, 2)...)
	b.job(1, 1, at(0, 0))
	b.job(1, 1, at(1, 0))
	b.job(2, 2, nil)
	p := New("isolated", policy.NewOptions(nil))
	b.stage.Stop = time.Minute
	if plan := b.stage.Decide(t, p); len(plan.Revokes) != 1 || len(plan.Grants) != 0 {
		t.Fatalf("plan %+v", plan)
	}
	begun := p.s.Begun
	if plan := b.stage.Decide(t, p); len(plan.Grants)+len(plan.Revokes) != 0 {
		t.Fatalf("before the first left: %+v", plan)
	}
	b.stage.Settle()
	plan := b.stage.Decide(t, p)
	if len(plan.Grants) != 2 || !p.s.Begun.Equal(begun) || !b.jobs[2].Running() || !b.jobs[0].Running() {
		t.Errorf("once the first left: %+v, in the round of %v, was %v", plan, p.s.Begun, begun)
	}
}

// A snapshot in the old format of assignments can be read.
func TestOldAssignmentsAreRead(t *testing.T) {
	t.Parallel()
	p := New("isolated", policy.NewOptions(nil))
	old := `{"epoch":"2026-11-21T10:00:00Z","last":1,"on":true,"begun":"2026-11-21T10:00:00Z","fifo":{},"alone":{},` +
		`"seats":[{"job":1,"who":{"app":"a","order":0,"trial":0},"type":0,"gang":[{"node":"n1","devices":[0,2]}],"given":true}]}`
	if err := p.Restore([]byte(old)); err != nil {
		t.Fatal(err)
	}
	want := policy.NamedGang{{Node: "n1", Devices: []int{0, 2}}}
	if len(p.s.Assignments) != 1 || fmt.Sprint(p.s.Assignments[0].Gang) != fmt.Sprint(want) {
		t.Errorf("assignments %+v", p.s.Assignments)
	}
}

// A job that could run on one type if its tenant's quota for that type were larger counts as a job that needs several
// types: it gets what is free of several.
func TestAQuotaClosesAType(t *testing.T) {
	t.Parallel()
	mixed := gpus("mixed", 4)
	mixed.Devices[3].Type = "k80"
	v := &policy.View{
		Now: time.Unix(1_600_000_000, 0), Nodes: []cluster.Node{mixed, stagetest.Nodes("p100", 1, 4, 4)[0]},
		Tenants: []policy.Tenant{{Name: "x", Weight: 1, Quota: cluster.Quota{Owner: "x", All: -1, Of: map[string]int{"p100": 3}}}},
	}
	v.Free = cluster.NewCapacity(v.Nodes)
	v.Bound()
	a := &policy.App{
		ID: "app", Tenant: "x", Weight: 1, TotalSteps: 10,
		Demand: cluster.Demand{Min: 4, Max: 4, MultiNode: true, Mixed: true, Quota: v.QuotaOf("x")},
	}
	a.Jobs = []*policy.Job{{App: a, Demand: a.Demand, Weight: 1, UntilStep: 10, TotalSteps: 10, Queued: v.Now}}
	v.Apps = []*policy.App{a}
	plan := New("isolated", policy.NewOptions(nil)).Decide(v)
	if len(plan.Grants) != 1 || fmt.Sprint(plan.Grants[0].Gang) != "[{0 [0 1 2 3]}]" {
		t.Errorf("plan %+v", plan)
	}
}
