// Package policytest checks that a policy keeps the rules that the control loop relies on. People who write a policy
// of their own can run it.
package policytest

import (
	"bytes"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/policy"
)

// Run draws random clusters and jobs and checks every plan: it fits what is free, keeps gangs whole, obeys device
// types and trust, moves only what may be moved, gives reasons, does not change the view, and depends on nothing but
// the view and the policy's snapshot.
func Run(t *testing.T, make func() policy.Policy) {
	t.Helper()
	rapid.Check(t, func(t *rapid.T) {
		v := drawView(t)
		before := copyView(v)
		p := make()
		state, err := p.Snapshot()
		if err != nil {
			t.Fatalf("snapshot: %v", err)
		}
		plan := p.Decide(v)
		if !reflect.DeepEqual(before, v) {
			t.Fatalf("the policy changed its view")
		}
		Check(t, v, plan)
		again := make()
		if state != nil {
			if err := again.Restore(state); err != nil {
				t.Fatalf("restore: %v", err)
			}
		}
		if second := again.Decide(v); !reflect.DeepEqual(plan, second) {
			t.Fatalf("the same view and snapshot gave two plans:\n%+v\n%+v", plan, second)
		}
		a, errA := p.Snapshot()
		b, errB := again.Snapshot()
		if errA != nil || errB != nil || !bytes.Equal(a, b) {
			t.Fatalf("the same decision left two states: %v %v", errA, errB)
		}
	})
}

// failer is what Check needs of a test.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

// Check fails if the plan breaks a rule in the view.
func Check(t failer, v *policy.View, plan policy.Plan) {
	t.Helper()
	revoked := map[int]bool{}
	for _, r := range plan.Revokes {
		j := &v.Jobs[r.Job]
		if !j.Running() || j.Ending || revoked[r.Job] || r.Reason == "" {
			t.Fatalf("bad revoke %+v of %+v", r, j)
		}
		revoked[r.Job] = true
	}
	granted := map[int]bool{}
	taken := map[string]map[int]bool{}
	for _, g := range plan.Grants {
		j := &v.Jobs[g.Job]
		if j.Running() || j.Ending || granted[g.Job] {
			t.Fatalf("job %d cannot be granted anything: %+v", g.Job, j)
		}
		granted[g.Job] = true
		i := slices.IndexFunc(v.Nodes, func(n cluster.Node) bool { return n.Name == g.Node })
		if i < 0 {
			t.Fatalf("grant on unknown node %q", g.Node)
		}
		checkGrant(t, &v.Nodes[i], j, g)
		for _, d := range g.Devices {
			if taken[g.Node] == nil {
				taken[g.Node] = map[int]bool{}
			}
			if taken[g.Node][d] {
				t.Fatalf("device %d of %s is granted twice", d, g.Node)
			}
			taken[g.Node][d] = true
		}
	}
}

func checkGrant(t failer, n *cluster.Node, j *policy.Job, g policy.Grant) {
	t.Helper()
	if len(g.Devices) < j.Demand.Min || len(g.Devices) > j.Demand.Max {
		t.Fatalf("%d devices for a gang of %d to %d", len(g.Devices), j.Demand.Min, j.Demand.Max)
	}
	if n.Draining || j.Demand.NeedsTrust && !n.Trusted || g.Reason == "" {
		t.Fatalf("node %s must not get this job, or no reason was given: %+v", n.Name, g)
	}
	for _, d := range g.Devices {
		if d < 0 || d >= len(n.Devices) || n.Devices[d].Holder != cluster.Free || !j.Demand.Accepts(n.Devices[d].Type) {
			t.Fatalf("device %d of %s is not free, not there or of the wrong type", d, n.Name)
		}
	}
}

func drawView(t *rapid.T) *policy.View {
	types := []string{"v100", "p100", "k80"}
	v := &policy.View{Now: time.Unix(1_000_000, 0).UTC(), Round: 1}
	for i := range rapid.IntRange(0, 5).Draw(t, "nodes") {
		n := cluster.Node{Name: string(rune('a' + i)), Trusted: rapid.Bool().Draw(t, "trusted"), Draining: rapid.IntRange(0, 5).Draw(t, "draining") == 0}
		for d := range rapid.IntRange(0, 4).Draw(t, "devices") {
			n.Devices = append(n.Devices, cluster.Device{Index: d, Type: rapid.SampledFrom(types).Draw(t, "type"), Speed: 1, Holder: cluster.Free})
		}
		v.Nodes = append(v.Nodes, n)
	}
	for i := range rapid.IntRange(0, 4).Draw(t, "apps") {
		v.Apps = append(v.Apps, policy.App{ID: string(rune('p'+i)) + "-1", Tenant: "t", Submitted: v.Now.Add(-time.Duration(10-i) * time.Minute)})
		for n := range rapid.IntRange(0, 6).Draw(t, "jobs") {
			v.Jobs = append(v.Jobs, drawJob(t, v, i, int32(n), types))
		}
	}
	return v
}

func drawJob(t *rapid.T, v *policy.View, app int, trial int32, types []string) policy.Job {
	least := rapid.IntRange(1, 3).Draw(t, "min")
	j := policy.Job{
		App: app, Trial: trial, UntilStep: 10,
		Demand: cluster.Demand{
			Min: least, Max: least + rapid.IntRange(0, 2).Draw(t, "more"),
			Types: rapid.SliceOfNDistinct(rapid.SampledFrom(types), 0, 2, rapid.ID).Draw(t, "types"), NeedsTrust: rapid.Bool().Draw(t, "trust"),
		},
		Queued: v.Now.Add(-time.Duration(rapid.IntRange(0, 600).Draw(t, "waited")) * time.Second),
	}
	if place, ok := v.Capacity().Place(j.Demand); ok && rapid.Bool().Draw(t, "runs") {
		j.Node, j.Devices, j.Queued, j.Granted = place.Node, place.Devices, time.Time{}, j.Queued
		j.Ending = rapid.IntRange(0, 4).Draw(t, "ending") == 0
		hold(v, place, len(v.Jobs), j.Ending)
	}
	return j
}

func hold(v *policy.View, place cluster.Placement, job int, ending bool) {
	for i := range v.Nodes {
		if v.Nodes[i].Name != place.Node {
			continue
		}
		for _, d := range place.Devices {
			v.Nodes[i].Devices[d].Holder = job
			if ending {
				v.Nodes[i].Devices[d].Holder = cluster.Busy
			}
		}
	}
}

func copyView(v *policy.View) *policy.View {
	c := *v
	c.Nodes = slices.Clone(v.Nodes)
	for i := range c.Nodes {
		c.Nodes[i].Devices = slices.Clone(v.Nodes[i].Devices)
	}
	c.Apps = slices.Clone(v.Apps)
	c.Jobs = slices.Clone(v.Jobs)
	return &c
}
