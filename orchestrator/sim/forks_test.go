package sim_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/lab"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/sim"
	"github.com/outbid-dev/outbid/orchestrator/sim/clusterspec"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// forking is a policy that adds a second lease to each training trial if a device is left.
type forking struct {
	policy.Policy
	granted *int
}

func (p forking) Decide(v *policy.View) policy.Plan {
	plan := p.Policy.Decide(v)
	if len(plan.Grants) > 0 {
		return plan // the remaining devices are seen in the next round
	}
	var given []cluster.Gang
	for _, a := range v.Apps {
		for _, j := range a.Jobs {
			if len(j.Gangs) != 1 || j.Ending {
				continue
			}
			for n, node := range v.Nodes {
				for d := range node.Devices {
					g := cluster.Gang{{Node: n, Devices: []int{d}}}
					if len(j.Gangs) == 1 && v.Free.Fits(g, j.Demand) && !slices.ContainsFunc(given, func(o cluster.Gang) bool { return sameGang(o, g) }) &&
						!slices.ContainsFunc(plan.Grants, func(o policy.Grant) bool { return o.Job == j }) {
						given = append(given, g)
						plan.Grants = append(plan.Grants, policy.Grant{Job: j, Gang: g, Fork: true, Reason: "a device is left"})
					}
				}
			}
		}
	}
	*p.granted += len(plan.Grants)
	return plan
}

func sameGang(a, b cluster.Gang) bool {
	return a[0].Node == b[0].Node && a[0].Devices[0] == b[0].Devices[0]
}

// halvingForked runs a sweep of nine trials on four devices, whose trials get a second fork if a device is left.
func halvingForked(transport func() sim.Transport, mishaps sim.Mishaps, seed uint64) (r sim.Result, forks int, err error) {
	r, err = sim.Run(context.Background(), sim.Setup{
		Nodes: mustNodes("gpu:4/2"), Apps: []sim.App{exploration("halving", 9)}, Control: settings(), Seed: seed,
		Policy: func() policy.Policy {
			p, _ := lab.Policies().New("fifo", nil) // the name is one of the registry's names
			return forking{p, &forks}
		},
		Transport: transport(), Mishaps: mishaps, RestartDelay: 3 * time.Second, SaveEvery: 30 * time.Second,
	})
	return r, forks, err
}

func mustNodes(text string) []cluster.Node {
	nodes, err := clusterspec.Parse(text)
	if err != nil {
		panic(err)
	}
	return nodes
}

// Trials trained by two forks at a time meet every invariant with any faults, and end like trials with one fork.
func TestForksKeepToTheInvariants(t *testing.T) {
	t.Parallel()
	lossy := func() sim.Transport {
		return sim.Network(sim.Faults{Lose: .05, Double: .05, Late: time.Second, CutOff: 2 * time.Minute, CutFor: 20 * time.Second})
	}
	for name, c := range map[string]struct {
		transport func() sim.Transport
		mishaps   sim.Mishaps
	}{
		"undisturbed":      {sim.Perfect, sim.Mishaps{}},
		"behind a network": {lossy, sim.Mishaps{}},
		"with failures":    {sim.Perfect, sim.Mishaps{JobFails: 300 * time.Second, NodeFails: 300 * time.Second, NodeBack: 30 * time.Second}},
		"with crashes":     {lossy, sim.Mishaps{OrchestratorFails: 30 * time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			total := 0
			for seed := range uint64(8) {
				r, forks, err := halvingForked(c.transport, c.mishaps, seed)
				if err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
				total += forks
				want := map[string]int{"pruned at 1": 6, "pruned at 3": 2, "completed at 9": 1}
				got := map[string]int{}
				for _, trial := range r.State.Sweeps["app-1"].Trials {
					got[fmt.Sprintf("%s at %d", state.TrialWord(trial.State), trial.MaxStep)]++
				}
				if c.mishaps.JobFails == 0 && !cmp.Equal(got, want) {
					t.Errorf("seed %d: it ends with %v", seed, got)
				}
			}
			if total == 0 {
				t.Error("no trial had a fork beside another")
			}
		})
	}
}

// A fork that sends messages under the lease of another fork of its trial, or that begins at a step that was not saved,
// is detected.
func TestBugsOfForksAreCaught(t *testing.T) {
	t.Parallel()
	for bug, c := range map[string]struct {
		make func() buggy
		want string
	}{
		"none": {func() buggy { return buggy{} }, ""},
		"a fork reports what another of its trial does": {swappedReports, "whose process made"},
		"a fork goes on from a later step":              {forksStartLater, "its leases trained"},
	} {
		t.Run(bug, func(t *testing.T) {
			t.Parallel()
			b := c.make()
			b.Transport = sim.Perfect()
			_, _, err := halvingForked(func() sim.Transport { return &b }, sim.Mishaps{}, 1)
			if caught := c.want == "" && err == nil || c.want != "" && err != nil && strings.Contains(err.Error(), c.want); !caught {
				t.Errorf("it says %v, want %q", err, c.want)
			}
		})
	}
}

// swappedReports attributes the reports of a trial to the fork that began last.
func swappedReports() buggy {
	newest := map[int32]*outbidv1.ForkRef{}
	return buggy{up: func(u *outbidv1.Uplink) {
		for _, m := range u.GetMessages() {
			switch trial := m.GetFork().GetTrial(); {
			case m.GetBegan() != nil:
				newest[trial] = m.GetFork()
			case m.GetReport() != nil:
				m.Fork = newest[trial]
			}
		}
	}}
}

// forksStartLater makes the second fork of a trial report a start beyond its checkpoint.
func forksStartLater() buggy {
	running := map[int32]int{}
	return buggy{up: func(u *outbidv1.Uplink) {
		for _, m := range u.GetMessages() {
			switch trial := m.GetFork().GetTrial(); {
			case m.GetEnded() != nil:
				running[trial]--
			case m.GetBegan() != nil:
				if running[trial]++; running[trial] > 1 {
					m.GetBegan().FromStep += 7
				}
			}
		}
	}}
}

// The device time of two forks of a job is counted for each, and the job neither waits nor is preempted when one of
// them ends.
func TestForksAreMeasured(t *testing.T) {
	t.Parallel()
	forks := 0
	r, err := sim.Run(context.Background(), sim.Setup{
		Nodes: nodesOf(t, "gpu:2/2"), Apps: jobsOf(t, [3]float64{0, 1, 100}), Control: settings(),
		Policy: func() policy.Policy { return forking{policyOf(t, "fifo")(), &forks} },
	})
	if err != nil {
		t.Fatal(err)
	}
	wantFigures(t, r, map[string]float64{
		"jobs": 1, "makespan": 100, "jct": 100, "queue": 0, "used": 1, "held": 200, "preempted": 0, "leases": 2, "failed": 0,
	})
}

// Bugs that would count a round's steps twice or lose some are detected: a fork whose checkpoint has a step that it has
// not done, a lease whose checkpoint has fewer steps than it did, and an average with weights other than the steps that
// were done.
func TestBugsOfRoundsAreCaught(t *testing.T) {
	t.Parallel()
	each := func(f func(*outbidv1.UplinkMessage)) buggy {
		return buggy{up: func(u *outbidv1.Uplink) {
			for _, m := range u.GetMessages() {
				f(m)
			}
		}}
	}
	for bug, c := range map[string]struct {
		bug  buggy
		want string
	}{
		"none": {buggy{}, ""},
		"a fork counts a step twice": {each(func(m *outbidv1.UplinkMessage) {
			if m.GetSaved() != nil {
				m.GetSaved().Step++
			}
		}), "its process trained"},
		"a fork begins elsewhere": {each(func(m *outbidv1.UplinkMessage) {
			if m.GetBegan().GetFromStep() > 0 {
				m.GetBegan().FromStep--
			}
		}), "starts from step"},
		"an average weighs another way": {buggy{down: func(o *outbidv1.Orders) {
			for _, c := range o.GetConsolidations() {
				for _, s := range c.GetSources() {
					s.Steps = 1
				}
			}
		}}, "not of what its"},
		"an average leaves a fork out": {buggy{down: func(o *outbidv1.Orders) {
			for _, c := range o.GetConsolidations() {
				c.Sources = c.GetSources()[:1]
			}
		}}, "not of what its"},
	} {
		t.Run(bug, func(t *testing.T) {
			t.Parallel()
			b := c.bug
			b.Transport = sim.Perfect()
			_, err := sim.Run(context.Background(), sim.Setup{
				Nodes: nodesOf(t, "v100:1/1,p100:1/1,k80:1/1"), Apps: forkedJobs(t, 1), Control: settings(), Policy: policyOf(t, "hadare"),
				Transport: &b, RestartDelay: 5 * time.Second,
			})
			if caught := c.want == "" && err == nil || c.want != "" && err != nil && strings.Contains(err.Error(), c.want); !caught {
				t.Errorf("it says %v, want %q", err, c.want)
			}
		})
	}
}
