package themis_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/lab/policy/ablation"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/forking"
	"github.com/outbid-dev/outbid/orchestrator/policy/stagetest"
	"github.com/outbid-dev/outbid/orchestrator/policy/themis"
)

// types maps device types to steps per second.
var types = map[string]float64{"v100": 4, "p100": 2, "k80": 1}

// unlike returns one node of each type, slowest first.
func unlike() *stagetest.Stage {
	return stagetest.New(append(append(stagetest.Nodes("k80", 1, 1, 1), stagetest.Nodes("p100", 1, 1, 1)...), stagetest.Nodes("v100", 1, 1, 1)...)...)
}

// sweep adds a sweep whose trials may have up to forks forks, or none if it is 0.
func sweep(s *stagetest.Stage, id string, forks, jobs int, steps int64) *policy.App {
	a := s.App(id, "t")
	a.Speeds, a.Demand, a.Tuner = &cluster.Speeds{}, cluster.Demand{Min: 1, Max: 1}, "random"
	for kind, rate := range types {
		a.Speeds.Measured = append(a.Speeds.Measured, cluster.Speed{Type: kind, Devices: 1, Rate: rate})
	}
	slices.SortFunc(a.Speeds.Measured, func(a, b cluster.Speed) int { return strings.Compare(a.Type, b.Type) })
	a.Forks, a.LeastForks, a.TotalSteps = forks, min(forks, 1), steps
	for range jobs {
		j := s.Job(a, 1, 1, steps)
		j.Forks, j.LeastForks = a.Forks, a.LeastForks
	}
	a.Finished = 0
	return a
}

// runs starts a trial of the stage on a node, with a lease that ends after the given time.
func runs(s *stagetest.Stage, j *policy.Job, node int, ends time.Duration) {
	j.Gangs, j.Granted, j.Reported, j.TermEnd = []cluster.Gang{{{Node: node, Devices: []int{0}}}}, s.Now, s.Now, s.Now.Add(ends)
	j.Queued = time.Time{}
}

// said formats a plan, with its grants in the order of nodes.
func said(s *stagetest.Stage, plan policy.Plan) string {
	lines := make([]string, 0, len(plan.Grants))
	for _, g := range plan.Grants {
		text := fmt.Sprintf("%s/%d on %s", g.Job.App.ID, g.Job.Trial, s.Nodes[g.Gang[0].Node].Devices[0].Type)
		if g.Steps > 0 {
			text += fmt.Sprintf(" %d steps", g.Steps)
		}
		lines = append(lines, text)
	}
	slices.Sort(lines)
	for _, r := range plan.Revokes {
		lines = append(lines, fmt.Sprintf("stop %s/%d", r.Job.App.ID, r.Job.Trial))
	}
	for _, r := range plan.Renews {
		lines = append(lines, fmt.Sprintf("renew %s/%d", r.Job.App.ID, r.Job.Trial))
	}
	return strings.Join(lines, ", ")
}

func bidding(t testing.TB, options map[string]string) policy.Policy {
	t.Helper()
	o := policy.NewOptions(options)
	p := ablation.Themis(o)
	if err := o.Err(); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestForksOfSurvivors(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		make func(*stagetest.Stage)
		want string
	}{
		"one on each node, by their rates": {
			func(s *stagetest.Stage) { sweep(s, "a", 9, 1, 7001) },
			"a/0 on k80 1000 steps, a/0 on p100 2000 steps, a/0 on v100 4000 steps",
		},
		"as many as it may have": {
			func(s *stagetest.Stage) { sweep(s, "a", 2, 1, 60_001) },
			"a/0 on p100 20000 steps, a/0 on v100 40000 steps",
		},
		"none where that costs more than it saves": {func(s *stagetest.Stage) { sweep(s, "a", 9, 1, 41) }, "a/0 on v100"},
		"one for the last step":                    {func(s *stagetest.Stage) { sweep(s, "a", 9, 1, 41).Jobs[0].StartStep = 40 }, "a/0 on v100"},
		"no forks without the option":              {func(s *stagetest.Stage) { sweep(s, "a", 0, 1, 7001) }, "a/0 on v100"},
		"none below the least":                     {func(s *stagetest.Stage) { a := sweep(s, "a", 9, 1, 7001); a.LeastForks, a.Jobs[0].LeastForks = 4, 4 }, "a/0 on v100"},
		"every job has one first":                  {func(s *stagetest.Stage) { sweep(s, "a", 9, 3, 7001) }, "a/0 on v100, a/1 on p100, a/2 on k80"},
		"devices that a paused sweep leaves":       {func(s *stagetest.Stage) { sweep(s, "a", 9, 1, 7001); sweep(s, "b", 0, 2, 7001).Paused = true }, "a/0 on k80 1000 steps, a/0 on p100 2000 steps, a/0 on v100 4000 steps"},
		"one that runs alone is stopped for more":  {func(s *stagetest.Stage) { runs(s, sweep(s, "a", 9, 1, 7001).Jobs[0], 2, time.Minute) }, "stop a/0"},
		"also when its lease is up":                {func(s *stagetest.Stage) { runs(s, sweep(s, "a", 9, 1, 7001).Jobs[0], 2, 0) }, "stop a/0"},
		"but not if that costs more time":          {func(s *stagetest.Stage) { runs(s, sweep(s, "a", 9, 1, 71).Jobs[0], 2, 0) }, "renew a/0"},
		"and not one whose sweep is paused": {func(s *stagetest.Stage) {
			a := sweep(s, "a", 9, 1, 7001)
			runs(s, a.Jobs[0], 0, time.Minute)
			a.Paused = true
		}, ""},
		"its forks are not joined by others, nor cut": {func(s *stagetest.Stage) {
			j := sweep(s, "a", 9, 1, 70_001).Jobs[0]
			runs(s, j, 0, time.Minute)
			j.Gangs, j.Forked = append(j.Gangs, cluster.Gang{{Node: 1, Devices: []int{0}}}), true
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := unlike()
			tc.make(s)
			if got := said(s, bidding(t, nil).Decide(s.View())); got != tc.want {
				t.Errorf("it decides %q, want %q", got, tc.want)
			}
		})
	}
}

// A sweep whose trials may be forked wins a mixed subset of the offer, and the record lists it. A sweep with fewer
// trials than there are devices gets those that the other sweep cannot use.
func TestAMixedSubsetIsWon(t *testing.T) {
	t.Parallel()
	s := unlike()
	sweep(s, "a", 9, 1, 70_001)
	sweep(s, "b", 0, 1, 70_001)
	plan := bidding(t, map[string]string{"f": "0"}).Decide(s.View())
	used := map[string]int{}
	for _, g := range plan.Grants {
		used[g.Job.App.ID]++
	}
	if used["a"] != 2 || used["b"] != 1 {
		t.Fatalf("it decides %s", said(s, plan))
	}
	mixed := 0
	for _, b := range plan.Auction.GetBidders() {
		for _, row := range b.GetBids() {
			kinds := map[string]bool{}
			for _, g := range row.GetGangs() {
				kinds[g.GetType()] = true
			}
			if len(kinds) > 1 && b.GetSweep() == "b" {
				t.Errorf("a sweep of one trial that is not forked bids for %v", row)
			}
			if len(kinds) > 1 {
				mixed++
			}
		}
		if n := len(b.GetWon()) + len(b.GetLeftover()); n != used[b.GetSweep()] {
			t.Errorf("%s has %d nodes, and the record says won %v, leftover %v", b.GetSweep(), used[b.GetSweep()], b.GetWon(), b.GetLeftover())
		}
	}
	if mixed == 0 {
		t.Errorf("no bid for a mixed subset: %v", plan.Auction)
	}
}

// forked runs a trial of the stage as forks on all three nodes, fastest first, in a slot that ends after the given
// time.
func forked(s *stagetest.Stage, j *policy.Job, ends time.Duration) {
	runs(s, j, 2, ends)
	j.Gangs, j.Forked = []cluster.Gang{{{Node: 2, Devices: []int{0}}}, {{Node: 1, Devices: []int{0}}}, {{Node: 0, Devices: []int{0}}}}, true
}

// At the end of a slot its devices are on offer. Those that its trial wins again are kept for it while its forks save
// and are averaged; those that another trial wins go to it as soon as they are free.
func TestTheNextSlot(t *testing.T) {
	t.Parallel()
	s := unlike()
	a := sweep(s, "a", 9, 1, 700_001)
	b := sweep(s, "b", 0, 1, 700_001)
	p := bidding(t, map[string]string{"f": "0"})
	j := a.Jobs[0]
	forked(s, j, 0)
	if got := said(s, p.Decide(s.View())); got != "stop a/0" {
		t.Fatalf("at the end of the slot: %s", got)
	}
	j.Ending, j.Gangs = true, j.Gangs[:2] // the fork on the slow node has saved
	s.Now = s.Now.Add(time.Second)
	first := said(s, p.Decide(s.View()))
	j.Gangs, j.Forked, j.Ending, j.Consolidating, j.StartStep, j.Queued = nil, false, false, true, 1000, s.Now
	s.Now = s.Now.Add(time.Second)
	plan := p.Decide(s.View())
	if first += said(s, plan); strings.Count(first, "on") != 1 || !strings.HasPrefix(first, "b/0 on ") {
		t.Fatalf("while its forks are averaged: %s", first)
	}
	for _, g := range plan.Grants {
		runs(s, g.Job, g.Gang[0].Node, 10*time.Minute)
	}
	if !b.Jobs[0].Running() {
		runs(s, b.Jobs[0], 0, 10*time.Minute)
	}
	sweep(s, "c", 0, 3, 1000)
	s.Now = s.Now.Add(time.Second)
	if got := said(s, p.Decide(s.View())); got != "" {
		t.Errorf("a new sweep got the reserved devices: %s", got)
	}
	state, err := p.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	j.Consolidating = false
	if p = bidding(t, map[string]string{"f": "0"}); p.Restore(state) != nil {
		t.Fatal("it does not go on from its snapshot")
	}
	s.Now = s.Now.Add(time.Second)
	if got := said(s, p.Decide(s.View())); strings.Count(got, "a/0 on") != 2 || strings.Count(got, "steps") != 2 || strings.Contains(got, "c/") {
		t.Errorf("when they are averaged: %s", got)
	}
}

// A trial whose forks have done their shares before the term ends continues where its first fork was, without an
// auction; the other devices are on offer.
func TestFinishedForksContinueInPlace(t *testing.T) {
	t.Parallel()
	s := unlike()
	j := sweep(s, "a", 9, 1, 700_001).Jobs[0]
	sweep(s, "b", 0, 3, 700_001)
	p := bidding(t, nil)
	forked(s, j, time.Minute)
	j.Ending = true
	if got := said(s, p.Decide(s.View())); got != "" {
		t.Fatalf("while they save: %s", got)
	}
	j.Gangs, j.Forked, j.Ending, j.Consolidating, j.StartStep = nil, false, false, true, 700_000
	if got := said(s, p.Decide(s.View())); got != "b/0 on p100, b/1 on k80" && got != "b/0 on k80, b/1 on p100" {
		t.Fatalf("while they are averaged: %s", got)
	}
	j.Consolidating = false
	for _, o := range s.Apps[1].Jobs[:2] {
		runs(s, o, int(o.Trial), 10*time.Minute)
	}
	if got := said(s, p.Decide(s.View())); got != "a/0 on v100" {
		t.Errorf("the last step: %s", got)
	}
}

// A node that is not free again in time delays no trial: after a quarter of a lease the trial gets the nodes that are
// free.
func TestLateForkDelaysNoTrial(t *testing.T) {
	t.Parallel()
	s := unlike()
	a := sweep(s, "a", 9, 1, 700_001)
	b := sweep(s, "b", 0, 1, 10_000)
	p := bidding(t, map[string]string{"lease": "40s"})
	b.Paused = true
	runs(s, b.Jobs[0], 2, 0)
	b.Jobs[0].Ending = true
	forked(s, a.Jobs[0], 0)
	a.Jobs[0].Gangs, a.Jobs[0].Ending = a.Jobs[0].Gangs[1:], true
	if got := said(s, p.Decide(s.View())); got != "" {
		t.Fatalf("at the end of the slot: %s", got)
	}
	late := a.Jobs[0].Gangs[1]
	a.Jobs[0].Gangs, a.Jobs[0].Forked, a.Jobs[0].Ending, a.Jobs[0].StartStep = nil, false, false, 1000
	// Its old fork on the slow node is still ending, modelled as a trial of another sweep.
	c := sweep(s, "c", 0, 1, 10_000)
	c.Paused = true
	runs(s, c.Jobs[0], late[0].Node, 0)
	c.Jobs[0].Ending = true
	s.Now = s.Now.Add(time.Second)
	plan := p.Decide(s.View())
	if got := said(s, plan); got != "" || !plan.Next.Equal(s.Now.Add(9*time.Second)) {
		t.Fatalf("before it is free: %s, again in %s", got, plan.Next.Sub(s.Now))
	}
	s.Now = plan.Next
	if got := said(s, p.Decide(s.View())); got != "a/0 on p100" {
		t.Errorf("after a quarter of a lease: %s", got)
	}
}

// drawn draws a cluster of unlike nodes and some sweeps; some may be forked, and some of the trials already run.
func drawn(t *rapid.T) *stagetest.Stage {
	var nodes []cluster.Node
	for _, kind := range []string{"k80", "p100", "v100"} {
		nodes = append(nodes, stagetest.Nodes(kind, rapid.IntRange(0, 3).Draw(t, kind), rapid.IntRange(1, 2).Draw(t, "devices"), 2)...)
	}
	if len(nodes) == 0 {
		nodes = stagetest.Nodes("v100", 1, 1, 1)
	}
	s := stagetest.New(nodes...)
	taken := map[int]bool{}
	for i := range rapid.IntRange(1, 4).Draw(t, "sweeps") {
		forks := rapid.SampledFrom([]int{0, 2, 3, 99}).Draw(t, "forks")
		a := sweep(s, fmt.Sprint("s", i), forks, rapid.IntRange(1, 4).Draw(t, "jobs"), rapid.Int64Range(1, 100_000).Draw(t, "steps"))
		if forks > 0 {
			a.LeastForks = rapid.IntRange(1, 3).Draw(t, "least")
		}
		for _, j := range a.Jobs {
			j.LeastForks = a.LeastForks
			if node := rapid.IntRange(-1, len(nodes)-1).Draw(t, "runs on"); node >= 0 && !taken[node] {
				taken[node] = true
				runs(s, j, node, time.Duration(rapid.IntRange(0, 1).Draw(t, "lease"))*time.Minute)
			}
		}
	}
	return s
}

// On any cluster, no trial has more forks than allowed, fewer than its minimum, or two on a node; their shares add up
// to all that it has left but the last step; each trial that can have a gang has one before any is forked; and no
// device idles that would speed up a survivor.
func TestForksUnderThemisKeepTheRules(t *testing.T) {
	t.Parallel()
	forks := 0
	rapid.Check(t, func(t *rapid.T) {
		s := drawn(t)
		o := policy.NewOptions(map[string]string{"f": rapid.SampledFrom([]string{"0", "0.8"}).Draw(t, "f")})
		v := s.View()
		free := v.Free.FreeDevices()
		plan := themis.New(o).Decide(v)
		if v.Free.FreeDevices() != free {
			t.Fatal("the view is not as it was")
		}
		stopped := map[*policy.Job]bool{}
		for _, r := range plan.Revokes {
			stopped[r.Job] = true
		}
		of := map[*policy.Job][]policy.Grant{}
		for _, g := range plan.Grants {
			if g.Job.Running() || !v.Free.Fits(g.Gang, g.Job.Demand) || g.Fork != (len(of[g.Job]) > 0) {
				t.Fatalf("%v is granted %v, fork %t: %s", g.Job.Name(), g.Gang, g.Fork, said(s, plan))
			}
			v.Free.Take(g.Gang, g.Job.Demand)
			of[g.Job] = append(of[g.Job], g)
		}
		for j, grants := range of {
			nodes, steps := map[int]bool{}, int64(0)
			for _, g := range grants {
				if nodes[g.Gang[0].Node] || (g.Steps > 0) != (len(grants) > 1) || g.TermEnd != grants[0].TermEnd {
					t.Fatalf("the forks of %v: %s", j.Name(), said(s, plan))
				}
				nodes[g.Gang[0].Node] = true
				steps += g.Steps
			}
			if n := len(grants); n > 1 && (n > j.Forks || n < j.LeastForks || steps != forking.Left(j)) {
				t.Fatalf("%v may have %d to %d forks, with %d steps: %s", j.Name(), j.LeastForks, j.Forks, forking.Left(j), said(s, plan))
			}
			if len(grants) > 1 {
				forks++
			}
		}
		if len(stopped) == 0 { // otherwise free devices are kept for trials that move
			idles(t, s, v, of, plan)
		}
	})
	if forks == 0 {
		t.Error("no job was forked")
	}
}

// idles fails if a device is free that a trial of the stage could use.
func idles(t *rapid.T, s *stagetest.Stage, v *policy.View, of map[*policy.Job][]policy.Grant, plan policy.Plan) {
	for _, a := range s.Apps {
		for _, j := range a.Jobs {
			gangs := j.Gangs
			for _, g := range of[j] {
				gangs = append(gangs, g.Gang)
			}
			for node := range v.Nodes {
				on := slices.ContainsFunc(gangs, func(g cluster.Gang) bool { return g[0].Node == node })
				if v.Free.FreeAt(node, "") == 0 || on {
					continue
				}
				if len(gangs) == 0 {
					t.Fatalf("%v waits, and %s is free: %s", j.Name(), v.Nodes[node].Name, said(s, plan))
				}
				rate := 0.0
				for _, g := range gangs {
					rate += v.Rate(j, g)
				}
				left := float64(j.UntilStep) - v.StepAt(j)
				more := rate + types[v.Nodes[node].Devices[0].Type]
				gains := left/rate - left/more - 10
				if len(gangs) < j.Forks && j.LeastForks <= 2 && gains > 1 && left > 20 {
					t.Fatalf("%v of %v steps on %v would gain %v s by %s, which idles: %s", j.Name(), left, gangs, gains, v.Nodes[node].Name, said(s, plan))
				}
			}
		}
	}
}
