package policy_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/policytest"
	"github.com/outbid-dev/outbid/orchestrator/policy/stagetest"
)

// planning is a plan built from random steps.
type planning struct {
	v     *policy.View
	p     *policy.Planner
	jobs  []*policy.Job
	terms map[time.Time]bool
}

func drawPlanning(t *rapid.T) *planning {
	v := policytest.DrawView(t)
	start := rapid.SampledFrom([]func(*policy.View) *policy.Planner{policy.Extend, policy.Refill, policy.Preempt}).Draw(t, "start")
	pl := &planning{v: v, p: start(v), terms: map[time.Time]bool{{}: true}}
	for _, a := range v.Apps {
		pl.jobs = append(pl.jobs, a.Jobs...)
	}
	return pl
}

// step makes a random call of the planner, sensible or not.
func (pl *planning) step(t *rapid.T) {
	p, j := pl.p, rapid.SampledFrom(pl.jobs).Draw(t, "job")
	switch rapid.IntRange(0, 11).Draw(t, "step") {
	case 0:
		p.Keep(j)
	case 1:
		p.Place(j, "placed")
	case 2:
		n := rapid.IntRange(j.Demand.Min, j.Demand.Max).Draw(t, "n")
		if g, ok := p.Free().Place(j.Demand, n, ""); ok {
			p.PlaceOn(j, g, "placed on")
		}
	case 3:
		p.KeepOrPlace(j, "kept or placed")
	case 4:
		end := pl.v.Now.Add(time.Duration(rapid.IntRange(1, 3).Draw(t, "minutes")) * time.Minute)
		pl.terms[end] = true
		p.Until(end)
		p.Renew(j, "renewed")
	case 5:
		p.Evict(j, "evicted")
	case 6:
		p.Drop(j)
	case 7:
		p.Reclaim(j)
	case 8:
		if j.Running() && !j.Ending {
			p.Resize(j, rapid.IntRange(max(1, j.Demand.Min), max(1, j.Demand.Max)).Draw(t, "size"), "", "resized")
		}
	case 9:
		p.Fill([]*policy.Job{j}, "filled")
	case 10:
		if g, ok := p.Free().Best(j.Demand); ok && j.Waiting() {
			p.Claim(j, g, "claimed")
		}
	case 11:
		p.Rank([]*policy.Job{j}, func(j *policy.Job) int { return j.Demand.Max }, "ranked")
	}
}

// steps makes random calls, partly within statements. Discarding a statement must restore the exact state.
func (pl *planning) steps(t *rapid.T, depth int) {
	for range rapid.IntRange(0, 6).Draw(t, "steps") {
		if depth == 0 || rapid.IntRange(0, 2).Draw(t, "simulates") > 0 {
			pl.step(t)
			continue
		}
		before, statement := pl.p.State(), pl.p.Statement()
		pl.steps(t, depth-1)
		if rapid.Bool().Draw(t, "commits") {
			statement.Commit()
			statement.Discard() // has no effect
			continue
		}
		if statement.Discard(); pl.p.State() != before {
			t.Fatalf("a discarded statement left\n%s\nwhere there was\n%s", pl.p.State(), before)
		}
	}
}

// For any sequence of decisions and discarded statements, the plan is valid, no device is granted, reserved or kept
// twice, terms are as set, and the view ends exactly as it began.
func TestPlansKeepTheRules(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		pl := drawPlanning(t)
		if len(pl.jobs) == 0 {
			return
		}
		whole := pl.v.Statement()
		whole.Discard()
		pl.steps(t, 3)
		reserved := pl.p.Reserved()
		plan := pl.p.Plan("planned", "evicted")
		policytest.Check(t, pl.v, plan)
		pl.checkShared(t, plan, reserved)
		for _, g := range plan.Grants {
			if !pl.terms[g.TermEnd] {
				t.Fatalf("granted until %v", g.TermEnd)
			}
		}
		for _, r := range plan.Renews {
			if !pl.terms[r.TermEnd] {
				t.Fatalf("renewed until %v", r.TermEnd)
			}
		}
	})
}

// checkShared fails if two jobs would have the same device once the plan was carried out and every job moved.
func (pl *planning) checkShared(t *rapid.T, plan policy.Plan, reserved []policy.Reserved) {
	owner := map[string]string{}
	own := func(g cluster.Gang, who string) {
		for _, at := range g {
			for _, d := range at.Devices {
				device := fmt.Sprintf("%d/%d", at.Node, d)
				if owner[device] != "" {
					t.Fatalf("device %s is both %s and %s", device, owner[device], who)
				}
				owner[device] = who
			}
		}
	}
	gone := map[*policy.Job]bool{}
	for _, r := range plan.Revokes {
		gone[r.Job] = true
	}
	for _, j := range pl.jobs {
		if j.Running() && !j.Ending && !gone[j] {
			own(j.Gang(), fmt.Sprint("held by ", j.Name()))
		}
	}
	for _, g := range plan.Grants {
		own(g.Gang, fmt.Sprint("granted to ", g.Job.Name()))
	}
	for _, r := range reserved {
		own(r.Gang, fmt.Sprint("reserved for ", r.Job.Name()))
		if r.Job.Running() && !r.Job.Ending && !gone[r.Job] {
			t.Fatalf("%v has a reservation and also keeps its devices", r.Job.Name())
		}
	}
}

// Discarding a statement of the view restores it exactly, and committing one keeps what it took.
func TestStatementsOfAView(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		v := policytest.DrawView(t)
		before, free := policytest.Imprint(v), fmt.Sprintf("%+v", *v.Free)
		outer := v.Statement()
		taken := 0
		for _, a := range v.Apps {
			for _, j := range a.Jobs {
				inner := v.Statement()
				if j.Running() {
					v.Free.Release(j.Gang(), j.Demand)
				}
				g, ok := v.Free.Best(j.Demand)
				if !ok || rapid.Bool().Draw(t, "discard") {
					inner.Discard()
					continue
				}
				if j.Running() {
					inner.Discard()
					inner = v.Statement()
					if g, ok = v.Free.Best(j.Demand); !ok {
						continue
					}
				}
				v.Free.Take(g, j.Demand)
				taken += g.Size()
				inner.Commit()
			}
		}
		was := v.Free.FreeDevices() + taken
		outer.Discard()
		if v.Free.FreeDevices() != was || !bytes.Equal(policytest.Imprint(v), before) || fmt.Sprintf("%+v", *v.Free) != free {
			t.Fatalf("%d devices are free, %d were; free is %+v", v.Free.FreeDevices(), was, *v.Free)
		}
	})
}

// full returns one node with four devices, two of them held by a trial, and two waiting trials.
func full(least int) (v *policy.View, holder, first, second *policy.Job) {
	s := stagetest.New(stagetest.Nodes("gpu", 1, 4, 4)...)
	a := s.App("a", "t")
	holder = s.Job(a, 1, 4, 1e9)
	holder.Gangs = []cluster.Gang{{{Node: 0, Devices: []int{0, 1}}}}
	first, second = s.Job(a, least, 4, 1e9), s.Job(a, 1, 1, 1e9)
	return s.View(), holder, first, second
}

// Devices that still have to be released are reserved and then granted once free. Until then no other trial gets them,
// nor those of the gang that are free already.
func TestReservationsAreHeldUntilTheyAreFulfilled(t *testing.T) {
	t.Parallel()
	v, holder, first, second := full(4)
	p := policy.Extend(v)
	p.Reclaim(holder)
	if !p.Place(first, "wins") || p.Granted(first) || p.Place(second, "comes late") {
		t.Fatalf("first was granted %v; reserved %v", p.Granted(first), p.Reserved())
	}
	made := p.Reservations()
	if plan := p.Plan("", "lost"); len(plan.Revokes) != 1 || len(plan.Grants) != 0 || len(made) != 1 || made[0].Job != first.Name() {
		t.Fatalf("plan %+v, reservations %+v", plan, made)
	}
	holder.Ending = true
	claim := func() (policy.Claim, policy.Plan) {
		g, ok := made[0].Nodes.In(v)
		j := made[0].Claimant(v, first.App, g, func(*policy.Job) bool { return false })
		if !ok || j != first {
			t.Fatalf("%v is claimed by %v", g, j)
		}
		p := policy.Extend(v)
		c := p.Claim(j, g, "reserved")
		p.Fill([]*policy.Job{second}, "fills up")
		return c, p.Plan("", "")
	}
	if c, plan := claim(); c != policy.Held || len(plan.Grants) != 0 {
		t.Errorf("while the holder ends: %v, %+v", c, plan)
	}
	v.Free.Release(holder.Gang(), holder.Demand)
	holder.Gangs, holder.Ending = nil, false
	if c, plan := claim(); c != policy.Fulfilled || len(plan.Grants) != 1 || plan.Grants[0].Job != first {
		t.Errorf("once the holder left: %v, %+v", c, plan)
	}
	holder.Gangs = []cluster.Gang{{{Node: 0, Devices: []int{0, 1, 2, 3}}}}
	v.Free.Take(holder.Gang(), holder.Demand)
	if c, plan := claim(); c != policy.Lapsed || len(plan.Grants) != 0 {
		t.Errorf("when another trial runs there: %v, %+v", c, plan)
	}
}

func TestReservationsGoToUsableClaimants(t *testing.T) {
	t.Parallel()
	v, holder, first, second := full(2)
	third := &policy.Job{App: first.App, Trial: 7, Demand: cluster.Demand{Min: 1, Max: 2}}
	first.App.Jobs = append(first.App.Jobs, third)
	r := policy.Reservation{Job: first.Name()}
	g := cluster.Gang{{Node: 0, Devices: []int{2, 3}}}
	free := func(*policy.Job) bool { return false }
	if j := r.Claimant(v, first.App, g, free); j != first {
		t.Errorf("%v claims the reservation of the first", j.Name())
	}
	first.Gangs = []cluster.Gang{holder.Gang()} // runs on other devices
	if j := r.Claimant(v, first.App, g, free); j != third {
		t.Errorf("%v claims two devices; the second takes one, the third could use them", j)
	}
	if j := r.Claimant(v, first.App, g, func(j *policy.Job) bool { return j == third }); j != nil {
		t.Errorf("%v claims them although it has others; the second, %v, cannot use them", j, second.Name())
	}
	first.Ending = true
	if j := r.Claimant(v, first.App, g, free); j != first {
		t.Errorf("%v claims the reservation of the first, which is ending", j)
	}
}

func TestGangsAreFoundByName(t *testing.T) {
	t.Parallel()
	s := stagetest.New(stagetest.Nodes("gpu", 3, 2, 2)...)
	v := s.View()
	named := v.Named(cluster.Gang{{Node: 1, Devices: []int{0, 1}}, {Node: 2, Devices: []int{1}}})
	after := &policy.View{Nodes: s.Nodes[1:]}
	if g, ok := named.In(after); !ok || !g.Equal(cluster.Gang{{Node: 0, Devices: []int{0, 1}}, {Node: 1, Devices: []int{1}}}) {
		t.Errorf("found %v, %v once the first node was gone", g, ok)
	}
	if g, ok := named.In(&policy.View{Nodes: s.Nodes[:2]}); ok {
		t.Errorf("found %v though a node of it is gone", g)
	}
	smaller := []cluster.Node{s.Nodes[0], s.Nodes[1], {Name: s.Nodes[2].Name}}
	if g, ok := named.In(&policy.View{Nodes: smaller}); ok {
		t.Errorf("found %v though a device of it is gone", g)
	}
}

func TestResize(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		n    int
		want bool
		on   []int
	}{
		"fewer":           {1, true, []int{0}},
		"more":            {4, true, []int{0, 1, 2, 3}},
		"more than there": {5, false, nil},
	} {
		v, holder, _, _ := full(1)
		p := policy.Preempt(v)
		p.Keep(holder)
		if got := p.Resize(holder, tc.n, "", name); got != tc.want {
			t.Errorf("%s: resized %v", name, got)
		}
		reserved := p.Reserved()
		plan := p.Plan("", "resized")
		if (len(plan.Revokes) == 1) != tc.want || (len(reserved) == 1) != tc.want {
			t.Errorf("%s: plan %+v, reserved %+v", name, plan, reserved)
		}
		if tc.want && !reserved[0].Gang.Equal(cluster.Gang{{Node: 0, Devices: tc.on}}) {
			t.Errorf("%s: reserved %v", name, reserved[0].Gang)
		}
	}
}

// Cores and memory that still have to be released block a grant just as devices do, and no longer.
func TestPendingCoresHoldBack(t *testing.T) {
	t.Parallel()
	s := stagetest.New(stagetest.Nodes("gpu", 1, 4, 4)...)
	s.Nodes[0].CPUs = 4
	a := s.App("a", "t")
	holder, first, second := s.Job(a, 1, 1, 1e9), s.Job(a, 1, 1, 1e9), s.Job(a, 1, 1, 1e9)
	holder.Demand.CPUs, first.Demand.CPUs, second.Demand.CPUs = 3, 2, 1
	holder.Gangs, holder.Ending = []cluster.Gang{{{Node: 0, Devices: []int{0}}}}, true
	p := policy.Refill(s.View())
	if !p.Place(first, "") || p.Granted(first) {
		t.Errorf("two of four cores are granted, of which three are still held")
	}
	if !p.Place(second, "") || !p.Granted(second) {
		t.Errorf("the one core that is free is not granted")
	}
}

// A job that is placed without being reclaimed moves, and the plan may use its own devices only if it is reclaimed
// later.
func TestPlacingARunningJobMovesIt(t *testing.T) {
	t.Parallel()
	v, holder, first, second := full(2)
	p := policy.Extend(v)
	if !p.PlaceOn(holder, cluster.Gang{{Node: 0, Devices: []int{2, 3}}}, "moves") || p.Place(first, "") {
		t.Error("the holder does not move, or its devices are used by the plan already")
	}
	if p.Keep(holder) || p.Renew(holder, "") || p.PlaceOn(holder, cluster.Gang{{Node: 0, Devices: []int{0}}}, "") {
		t.Error("a moving trial also stays, or moves twice")
	}
	p.Reclaim(holder)
	if !p.Place(second, "") || p.Granted(second) {
		t.Error("its old devices are not used by the plan, or are granted before they are released")
	}
	if plan := p.Plan("", "it moves"); len(plan.Revokes) != 1 || plan.Revokes[0].Job != holder || len(plan.Grants) != 0 {
		t.Errorf("plan %+v", plan)
	}
}
