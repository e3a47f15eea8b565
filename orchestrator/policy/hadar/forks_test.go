package hadar_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/lab/policy/ablation"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/hadar"
	"github.com/outbid-dev/outbid/orchestrator/policy/stagetest"
)

func forking(t testing.TB, options map[string]string) policy.Policy {
	t.Helper()
	o := policy.NewOptions(options)
	p := ablation.HadarE(o)
	if err := o.Err(); err != nil {
		t.Fatal(err)
	}
	return p
}

// unlike returns one node of each of three types, whose devices do 4, 2 and 1 steps a second.
func unlike() *stagetest.Stage {
	return stagetest.New(append(append(stagetest.Nodes("v100", 1, 1, 1), stagetest.Nodes("p100", 1, 1, 1)...), stagetest.Nodes("k80", 1, 1, 1)...)...)
}

func forkable(s *stagetest.Stage, id string, forks int, steps int64) *policy.Job {
	a := s.App(id, "t")
	a.Speeds = &cluster.Speeds{Measured: []cluster.Speed{
		{Type: "v100", Devices: 1, Rate: 4}, {Type: "p100", Devices: 1, Rate: 2}, {Type: "k80", Devices: 1, Rate: 1},
	}}
	j := s.Job(a, 1, 1, steps)
	j.Forks, j.LeastForks = forks, 1
	return j
}

// said formats a plan.
func said(s *stagetest.Stage, plan policy.Plan) string {
	var lines []string
	for _, g := range plan.Grants {
		text := fmt.Sprintf("%s on %s", g.Job.App.ID, s.Nodes[g.Gang[0].Node].Devices[0].Type)
		if g.Steps > 0 {
			text += fmt.Sprintf(" %d steps", g.Steps)
		}
		if g.Fork {
			text += " as a further fork"
		}
		if !g.TermEnd.IsZero() {
			text += fmt.Sprintf(" for %s", g.TermEnd.Sub(s.Now))
		}
		lines = append(lines, text)
	}
	for _, r := range plan.Revokes {
		lines = append(lines, "stop "+r.Job.App.ID)
	}
	return strings.Join(lines, ", ")
}

func TestCopiesOfAJob(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		make func(*stagetest.Stage)
		want string
	}{
		"one on each node, by their rates": {
			func(s *stagetest.Stage) { forkable(s, "a", 9, 7001) },
			"a on v100 4000 steps for 6m0s, a on p100 2000 steps as a further fork for 6m0s, a on k80 1000 steps as a further fork for 6m0s",
		},
		"as many as it may have": {
			func(s *stagetest.Stage) { forkable(s, "a", 2, 60_001) },
			"a on v100 40000 steps for 6m0s, a on p100 20000 steps as a further fork for 6m0s",
		},
		"no more than a slot needs": {func(s *stagetest.Stage) { forkable(s, "a", 9, 1501) }, "a on v100 1000 steps for 6m0s, a on p100 500 steps as a further fork for 6m0s"},
		"one, if that is as fast":   {func(s *stagetest.Stage) { forkable(s, "a", 9, 41) }, "a on v100"},
		"one for the last step":     {func(s *stagetest.Stage) { j := forkable(s, "a", 9, 41); j.Step, j.StartStep = 40, 40 }, "a on v100"},
		"the steps from its checkpoint on, wherever it was": {func(s *stagetest.Stage) {
			j := forkable(s, "a", 9, 7501)
			j.Step, j.StartStep = 400, 500
		}, "a on v100 4000 steps for 6m0s, a on p100 2000 steps as a further fork for 6m0s, a on k80 1000 steps as a further fork for 6m0s"},
		"one that may not be forked": {func(s *stagetest.Stage) { forkable(s, "a", 0, 7001) }, "a on v100"},
		"none below the least":       {func(s *stagetest.Stage) { j := forkable(s, "a", 9, 7001); j.LeastForks = 4 }, "a on v100"},
		"every job has one first": {func(s *stagetest.Stage) {
			forkable(s, "a", 9, 70_001)
			forkable(s, "b", 9, 70_001)
			forkable(s, "c", 0, 70_001)
		}, "a on v100, b on p100, c on k80"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := unlike()
			tc.make(s)
			if got := said(s, forking(t, nil).Decide(s.View())); got != tc.want {
				t.Errorf("it grants %s, want %s", got, tc.want)
			}
		})
	}
}

// Devices are held back for a trial whose forks are being averaged: a trial that is ready earlier does not get them,
// and grants wait for devices that others still hold.
func TestForkSlotsOfSeveralTrials(t *testing.T) {
	t.Parallel()
	s := unlike()
	a, b := forkable(s, "a", 9, 70_001), forkable(s, "b", 9, 70_001)
	p := forking(t, nil)
	if got := said(s, p.Decide(s.View())); strings.Count(got, "steps") != 2 {
		t.Fatalf("it grants %s", got)
	}
	ends := s.Now.Add(6 * time.Minute)
	a.Gangs, a.Forked, a.TermEnd = []cluster.Gang{{{Node: 0, Devices: []int{0}}}, {{Node: 2, Devices: []int{0}}}}, true, ends
	b.Gangs, b.Granted = []cluster.Gang{{{Node: 1, Devices: []int{0}}}}, s.Now
	view := func() *policy.View {
		v := &policy.View{Now: s.Now, Nodes: s.Nodes, Free: cluster.NewCapacity(s.Nodes)}
		for _, app := range s.Apps {
			v.Apps = append(v.Apps, app)
			v.Free.Take(app.Jobs[0].Held(), app.Jobs[0].Demand)
		}
		return v
	}
	s.Now = s.Now.Add(time.Minute)
	if got := said(s, p.Decide(view())); got != "" {
		t.Errorf("in the slot: %s", got)
	}
	s.Now = ends
	if got := said(s, p.Decide(view())); !strings.Contains(got, "stop a") || strings.Contains(got, " on ") {
		t.Errorf("at its end: %s", got)
	}
	// Its forks have ended and are averaged: no other trial gets its devices.
	a.Gangs, a.Forked, a.Consolidating, a.Step, a.StartStep = nil, false, true, 1800, 1800
	c := forkable(s, "c", 9, 70_001)
	s.Now = s.Now.Add(time.Second)
	got := said(s, p.Decide(view()))
	if strings.Count(got, "on") != 1 || !strings.HasPrefix(got, "c on ") || strings.Contains(got, "steps") {
		t.Errorf("while it is averaged: %s", got)
	}
	c.App.Jobs = nil
	s.Apps = slices.Delete(s.Apps, 2, 3)
	a.Consolidating = false
	s.Now = s.Now.Add(time.Second)
	if got := said(s, p.Decide(view())); strings.Count(got, "a on ") != 2 || !strings.Contains(got, "for 5m58s") {
		t.Errorf("its next round: %s", got)
	}
}

// A trial that runs alone restarts as several forks when a slot begins and nodes idle.
func TestRunningTrialIsForkedAtNextSlot(t *testing.T) {
	t.Parallel()
	s := unlike()
	a := forkable(s, "a", 9, 70_001)
	a.Gangs, a.Granted = []cluster.Gang{{{Node: 0, Devices: []int{0}}}}, s.Now
	p := forking(t, nil)
	if got := said(s, p.Decide(s.View())); got != "stop a" {
		t.Fatalf("when the slot begins: %s", got)
	}
	a.Ending = true
	if got := said(s, p.Decide(s.View())); got != "" {
		t.Errorf("while it saves: %s", got)
	}
	a.Gangs, a.Ending = nil, false
	if got := said(s, p.Decide(s.View())); strings.Count(got, "steps") != 3 {
		t.Errorf("when it has: %s", got)
	}
	// A trial that may not be forked, or would gain less than its restart costs, stays.
	for _, left := range []int64{61, 70_001} {
		s := unlike()
		a := forkable(s, "a", map[bool]int{true: 9}[left == 61], left)
		a.Gangs, a.Granted = []cluster.Gang{{{Node: 0, Devices: []int{0}}}}, s.Now
		if got := said(s, forking(t, nil).Decide(s.View())); got != "" {
			t.Errorf("with %d steps left: %s", left, got)
		}
	}
}

// The corollary of theorem 3: no node idles while a trial that may be forked is unfinished, except in a trial's last
// slot.
func TestNoNodeIdlesBeforeTheEnd(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := stagetest.New(append(append(stagetest.Nodes("v100", rapid.IntRange(1, 3).Draw(t, "fast"), 1, 1),
			stagetest.Nodes("p100", rapid.IntRange(0, 3).Draw(t, "middle"), 1, 1)...), stagetest.Nodes("k80", rapid.IntRange(0, 3).Draw(t, "slow"), 1, 1)...)...)
		for i := range rapid.IntRange(1, 4).Draw(t, "jobs") {
			forkable(s, fmt.Sprint("j", i), 99, rapid.Int64Range(20_000, 1_000_000).Draw(t, "steps"))
		}
		plan := hadar.NewForking(policy.NewOptions(nil)).Decide(s.View())
		used, steps := map[int]int{}, map[*policy.Job]int64{}
		for _, g := range plan.Grants {
			used[g.Gang[0].Node]++
			steps[g.Job] += g.Steps
		}
		for node := range s.Nodes {
			if used[node] != 1 {
				t.Fatalf("node %d of %d has %d of %s", node, len(s.Nodes), used[node], said(s, plan))
			}
		}
		for j, sum := range steps {
			if sum != 0 && sum != j.UntilStep-1 {
				t.Fatalf("the shares of %s add up to %d of %d", j.App.ID, sum, j.UntilStep)
			}
		}
		if diff := cmp.Diff(len(steps), min(len(s.Apps), len(s.Nodes))); diff != "" {
			t.Fatalf("jobs that have a node: %s", diff)
		}
	})
}
