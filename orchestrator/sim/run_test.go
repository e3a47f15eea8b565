package sim_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/lab"
	"github.com/outbid-dev/outbid/orchestrator/ledger"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/sim"
	"github.com/outbid-dev/outbid/orchestrator/sim/clusterspec"
	"github.com/outbid-dev/outbid/orchestrator/spec"
	"github.com/outbid-dev/outbid/orchestrator/state"
	"github.com/outbid-dev/outbid/orchestrator/trace"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// jobsOf returns single jobs, given by submission time, GPUs and duration in seconds.
func jobsOf(t *testing.T, jobs ...[3]float64) []sim.App {
	t.Helper()
	made := &trace.Trace{Name: "hand"}
	for i, j := range jobs {
		made.Jobs = append(made.Jobs, trace.Job{
			ID: fmt.Sprint(i), Submit: j[0], MinGPUs: int(j[1]), MaxGPUs: int(j[1]), Duration: j[2],
		})
	}
	apps, err := sim.Apps(made, sim.Making{Types: []string{"gpu"}})
	if err != nil {
		t.Fatal(err)
	}
	return apps
}

func simulate(t *testing.T, policyName string, set sim.Setup) sim.Result {
	t.Helper()
	set.Policy, set.Control = policyOf(t, policyName), settings()
	r, err := sim.Run(context.Background(), set)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func nodesOf(t *testing.T, text string) []cluster.Node {
	t.Helper()
	nodes, err := clusterspec.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return nodes
}

// figures returns those figures of a result that tests compute by hand.
func figures(r sim.Result) map[string]float64 {
	return map[string]float64{
		"jobs": float64(r.Jobs), "makespan": r.Makespan, "jct": r.JCTMean, "queue": r.QueueMean, "slowdown": r.SlowdownMean,
		"used": r.Utilization, "held": r.GPUSeconds, "placed": r.PlacementScoreMean, "preempted": float64(r.Preemptions),
		"leases": float64(r.Leases), "failed": float64(r.Failed),
	}
}

func wantFigures(t *testing.T, r sim.Result, want map[string]float64) {
	t.Helper()
	got := figures(r)
	for name, w := range want {
		if math.Abs(got[name]-w) > 1e-6*max(1, w) {
			t.Errorf("%s is %g, want %g", name, got[name], w)
		}
	}
}

func TestTwoJobsOnOneGPU(t *testing.T) {
	t.Parallel()
	r := simulate(t, "fifo", sim.Setup{
		Nodes: nodesOf(t, "gpu:1/1"), Apps: jobsOf(t, [3]float64{0, 1, 100}, [3]float64{10, 1, 50}), RestartDelay: 10 * time.Second,
	})
	wantFigures(t, r, map[string]float64{
		"jobs": 2, "makespan": 150, "jct": (100 + 140) / 2., "queue": 90 / 2., "slowdown": (1 + 2.8) / 2, "used": 1, "held": 150,
		"preempted": 0, "leases": 2, "placed": 1,
	})
}

// A gang of two takes 1.1 times as long over two machines, and 1.3 times over two racks.
func TestAGangOverNodesIsSlower(t *testing.T) {
	t.Parallel()
	for cluster, seconds := range map[string]float64{"gpu:2/2": 100, "gpu:2/1": 110, "gpu:2/1/1": 130} {
		r := simulate(t, "fifo", sim.Setup{Nodes: nodesOf(t, cluster), Apps: jobsOf(t, [3]float64{5, 2, 100})})
		wantFigures(t, r, map[string]float64{
			"makespan": seconds, "jct": seconds, "slowdown": seconds / 100, "used": 1, "held": 2 * seconds, "placed": 100 / seconds,
		})
	}
}

// The short job takes the GPU at 20 and has it until 30. The long one, which saved, takes 10 s to restart and trains
// from 40 to 120.
func TestAPreemptedJobRestarts(t *testing.T) {
	t.Parallel()
	r := simulate(t, "srtf", sim.Setup{
		Nodes: nodesOf(t, "gpu:1/1"), Apps: jobsOf(t, [3]float64{0, 1, 100}, [3]float64{20, 1, 10}), RestartDelay: 10 * time.Second,
	})
	wantFigures(t, r, map[string]float64{
		"makespan": 120, "jct": (120 + 10) / 2., "queue": 10 / 2., "preempted": 1, "leases": 3, "held": 120, "used": 110. / 120,
	})
}

// The node is lost at 50 and back at 60. The job saved at 30, restarts by 70 and trains the last 70 s.
func TestALostNodeCostsWhatWasNotSaved(t *testing.T) {
	t.Parallel()
	nodes := nodesOf(t, "gpu:1/1")
	r := simulate(t, "fifo", sim.Setup{
		Nodes: nodes, Apps: jobsOf(t, [3]float64{0, 1, 100}), RestartDelay: 10 * time.Second, SaveEvery: 30 * time.Second,
		Stays: []sim.Stay{{Node: nodes[0].Name, To: 50 * time.Second}, {Node: nodes[0].Name, From: 60 * time.Second}},
	})
	wantFigures(t, r, map[string]float64{"makespan": 140, "jct": 140, "queue": 10, "preempted": 0, "leases": 2, "held": 130})
}

// A limit of device-hours counts the devices of every lease, also of those that hold devices now, and ends the sweep within
// a second. What it did not reach changes nothing.
func TestDeviceHoursEndASweep(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		devices, hours, used float64
		reason               string
	}{
		{1, 0.5, 1800, "limit reached: 0.5 device-hours used"},
		{4, 0.5, 1800, "limit reached: 0.5 device-hours used"},
		{4, 5, 4 * 3600, "the tuner finished after 1 trials"},
		{4, 0, 4 * 3600, "the tuner finished after 1 trials"},
	} {
		apps := jobsOf(t, [3]float64{0, tc.devices, 3600})
		apps[0].Spec.Limits.DeviceHours = tc.hours
		r := simulate(t, "fifo", sim.Setup{Nodes: nodesOf(t, "gpu:4/4"), Apps: apps})
		for _, s := range r.State.Sweeps {
			if s.Reason != tc.reason || s.DeviceSeconds < tc.used || s.DeviceSeconds > tc.used+tc.devices {
				t.Errorf("%g of %g device-hours: %g s used, %s", tc.devices, tc.hours, s.DeviceSeconds, s.Reason)
			}
		}
	}
}

// A limit of the cost counts each lease at the prices of its grant, also of leases that run, and ends the sweep within a
// second. A type without a price counts as the dearest.
func TestCostEndsASweep(t *testing.T) {
	t.Parallel()
	euro := func(of map[string]float64) *outbidv1.DevicePrices {
		return &outbidv1.DevicePrices{Currency: "EUR", DeviceHour: of}
	}
	for name, tc := range map[string]struct {
		prices  []sim.PriceChange
		devices float64
		most    float64
		cost    float64
		reason  string
	}{
		"one device":     {[]sim.PriceChange{{Prices: euro(map[string]float64{"gpu": 4})}}, 1, 2, 2, "limit reached: cost of 2 EUR"},
		"four devices":   {[]sim.PriceChange{{Prices: euro(map[string]float64{"*": 4})}}, 4, 2, 2, "limit reached: cost of 2 EUR"},
		"no own price":   {[]sim.PriceChange{{Prices: euro(map[string]float64{"k80": 1, "h100": 4})}}, 1, 2, 2, "limit reached: cost of 2 EUR"},
		"not reached":    {[]sim.PriceChange{{Prices: euro(map[string]float64{"gpu": 4})}}, 1, 5, 4, "the tuner finished after 1 trials"},
		"no limit":       {[]sim.PriceChange{{Prices: euro(map[string]float64{"gpu": 4})}}, 1, 0, 4, "the tuner finished after 1 trials"},
		"raised in time": {[]sim.PriceChange{{Prices: euro(map[string]float64{"gpu": 4})}, {At: 10 * time.Minute, Prices: euro(map[string]float64{"gpu": 40})}}, 1, 2, 2, "limit reached: cost of 2 EUR"},
		"no prices":      {nil, 1, 0, 0, "the tuner finished after 1 trials"},
	} {
		apps := jobsOf(t, [3]float64{0, tc.devices, 3600})
		apps[0].Spec.Limits.Cost = tc.most
		set := sim.Setup{Nodes: nodesOf(t, "gpu:4/4"), Apps: apps, Prices: tc.prices}
		record, r := kept(t, "fifo", set)
		for _, s := range r.State.Sweeps {
			if s.Reason != tc.reason || s.Cost < tc.cost-1e-9 || s.Cost > tc.cost+4*tc.devices/3600 {
				t.Errorf("%s: cost %g, %s", name, s.Cost, s.Reason)
			}
		}
		recording, err := sim.ReadRecording(context.Background(), record)
		if err != nil || len(recording.Prices) != len(tc.prices) {
			t.Fatalf("%s: %d prices are recorded, %v", name, len(recording.Prices), err)
		}
		again := simulate(t, "fifo", recording.Setup(policyOf(t, "fifo")()))
		for _, s := range again.State.Sweeps {
			if s.Reason != tc.reason || s.Cost < tc.cost-1e-9 || s.Cost > tc.cost+4*tc.devices/3600 {
				t.Errorf("%s, replayed: cost %g, %s", name, s.Cost, s.Reason)
			}
		}
	}
}

// Each lease costs what its devices did when it was granted.
func TestLeasesKeepThePricesOfTheirGrant(t *testing.T) {
	t.Parallel()
	price := func(at time.Duration, hour float64) sim.PriceChange {
		return sim.PriceChange{At: at, Prices: &outbidv1.DevicePrices{DeviceHour: map[string]float64{"gpu": hour}}}
	}
	r := simulate(t, "fifo", sim.Setup{
		Nodes: nodesOf(t, "gpu:1/1"), Apps: jobsOf(t, [3]float64{0, 1, 1800}, [3]float64{0, 1, 1800}),
		Prices: []sim.PriceChange{price(0, 2), price(10*time.Minute, 6)},
	})
	sum := 0.0
	for _, s := range r.State.Sweeps {
		sum += s.Cost
	}
	if math.Abs(sum-(1+3)) > .01 {
		t.Errorf("two leases of half an hour cost %g", sum)
	}
	snap, err := state.Restore(r.State.Snapshot())
	if err != nil || snap.DevicePrices().GetDeviceHour()["gpu"] != 6 {
		t.Errorf("the snapshot has the prices %v, %v", snap.DevicePrices(), err)
	}
}

// A failing job continues from its last save each time, and has done all its steps once in the end.
func TestFailingJobsEnd(t *testing.T) {
	t.Parallel()
	r := simulate(t, "fifo", sim.Setup{
		Nodes: nodesOf(t, "gpu:2/2"), Apps: jobsOf(t, [3]float64{0, 1, 5000}, [3]float64{0, 1, 5000}), Seed: 3,
		SaveEvery: 100 * time.Second, Mishaps: sim.Mishaps{JobFails: 1000 * time.Second}, RestartDelay: 7 * time.Second,
	})
	if r.Jobs != 2 || r.Leases < 5 || r.Preemptions != 0 || r.Makespan < 5000+7*2 || r.Makespan > 9000 {
		t.Errorf("%+v", figures(r))
	}
	for _, id := range r.State.SweepIDs {
		if trial := r.State.Sweeps[id].Trials[0]; trial.MaxStep > 5000 || trial.Restarts == 0 {
			t.Errorf("%s did %d steps with %d restarts", id, trial.MaxStep, trial.Restarts)
		}
	}
}

// exploration is an app whose trial n is better the lower n is. A step takes 10 s.
func exploration(tuner string, trials int32) sim.App {
	a := sim.App{Spec: sim.Sweep("app", "min", trials, sim.Tuner(tuner, map[string]int64{
		"max_steps": 9, "min_steps": 1, "eta": 3, "trials": int64(trials), "seed": 1,
	}))}
	for n := range trials {
		a.Jobs = append(a.Jobs, sim.Job{
			Speeds: &cluster.Speeds{Measured: []cluster.Speed{{Devices: 1, Locality: cluster.SameMachine, Rate: .1}}},
			Loss:   func(step float64) float64 { return 1 + float64(n)/10 - step/100 }, Every: 1, Isolated: 90,
		})
	}
	spec.Default(a.Spec)
	return a
}

func ends(s *state.Sweep) map[string]int {
	got := map[string]int{}
	for _, t := range s.Trials {
		got[fmt.Sprintf("%s at %d", state.TrialWord(t.State), t.Step)]++
	}
	return got
}

// Nine trials on nine GPUs do a step each; the best three do three, the best one nine: 10 + 20 + 60 s.
func TestSuccessiveHalving(t *testing.T) {
	t.Parallel()
	r := simulate(t, "fifo", sim.Setup{Nodes: nodesOf(t, "gpu:9/9"), Apps: []sim.App{exploration("halving", 9)}})
	wantFigures(t, r, map[string]float64{"makespan": 90, "held": 9*10 + 3*20 + 60, "failed": 0})
	s := r.State.Sweeps[r.State.SweepIDs[0]]
	if diff := cmp.Diff(map[string]int{"pruned at 1": 6, "pruned at 3": 2, "completed at 9": 1}, ends(s)); diff != "" {
		t.Error(diff)
	}
	if s.Best != 0 || s.Steps != 6*1+2*3+9 {
		t.Errorf("trial %d is best after %d steps", s.Best, s.Steps)
	}
}

// On one GPU, ASHA promotes as results arrive; the trial that it completes is the best.
func TestExplorationsOnOneGPU(t *testing.T) {
	t.Parallel()
	for _, tuner := range []string{"asha", "asha-stop", "hyperband", "performance", "median", "random", "pbt"} {
		r := simulate(t, "fifo", sim.Setup{Nodes: nodesOf(t, "gpu:1/1"), Apps: []sim.App{exploration(tuner, 9)}})
		s := r.State.Sweeps[r.State.SweepIDs[0]]
		if s.State != outbidv1.SweepState_SWEEP_STATE_DONE || s.Best < 0 || s.Trials[s.Best].MaxStep != 9 {
			t.Errorf("%s: %s; its best is trial %d: %v", tuner, s.Reason, s.Best, ends(s))
		}
		if want := 10 * float64(s.Steps); math.Abs(r.Makespan-want) > 1e-6 && tuner != "pbt" {
			t.Errorf("%s: %d steps took %g s", tuner, s.Steps, r.Makespan)
		}
	}
}

// A run is reproducible: the events, byte for byte, and the figures.
func TestRunsRepeat(t *testing.T) {
	t.Parallel()
	for seed, name := range []string{"fifo", "tiresias", "gavel-las", "gandiva-fair", "themis", "optimus", "hived"} {
		once := func() ([]*outbidv1.Batch, map[string]float64) {
			d := dice{rand.New(rand.NewPCG(uint64(seed), 99))}
			set := d.setup(uint64(seed))
			kept := ledger.NewMemory()
			set.Ledger = kept
			return batchesOf(t, kept, simulate(t, name, set))
		}
		events, result := once()
		again, result2 := once()
		// Computing the difference takes much longer than comparing.
		if !slices.EqualFunc(events, again, func(a, b *outbidv1.Batch) bool { return proto.Equal(a, b) }) {
			t.Errorf("%s: the events differ: %s", name, cmp.Diff(events, again, protocmp.Transform()))
		}
		if diff := cmp.Diff(result, result2); diff != "" {
			t.Errorf("%s: the figures differ: %s", name, diff)
		}
	}
}

func batchesOf(t *testing.T, l *ledger.Memory, r sim.Result) (all []*outbidv1.Batch, got map[string]float64) {
	t.Helper()
	if err := l.Another().Read(context.Background(), 1, func(b *outbidv1.Batch) error {
		all = append(all, b)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return all, figures(r)
}

// rogue is a policy that violates a rule.
type rogue struct {
	policy.Policy
	decide func(*policy.View) policy.Plan
}

func (r rogue) Decide(v *policy.View) policy.Plan { return r.decide(v) }

func TestInvariantsNameWhatPoliciesBreak(t *testing.T) {
	t.Parallel()
	fifo, err := lab.Policies().New("fifo", nil)
	if err != nil {
		t.Fatal(err)
	}
	grant := func(j *policy.Job, g cluster.Gang, v *policy.View, term time.Duration) policy.Plan {
		return policy.Plan{
			Grants: []policy.Grant{{Job: j, Gang: g, Reason: "because", TermEnd: v.Now.Add(term)}}, Reason: "r",
			Next: v.Now.Add(20 * time.Second),
		}
	}
	for want, decide := range map[string]func(*policy.View) policy.Plan{
		"is revoked 40s before the end of its term": func(v *policy.View) policy.Plan {
			j := v.Jobs()[0]
			if j.Waiting() {
				return grant(j, cluster.Gang{{Node: 0, Devices: []int{0}}}, v, time.Minute)
			}
			if at := j.Granted.Add(20 * time.Second); v.Now.Before(at) {
				return policy.Plan{Next: at}
			}
			return policy.Plan{Revokes: []policy.Revoke{{Job: j, Reason: "no more"}}, Reason: "r"}
		},
		"which is past": func(v *policy.View) policy.Plan {
			return grant(v.Jobs()[0], cluster.Gang{{Node: 0, Devices: []int{0}}}, v, -time.Second)
		},
		"has a gang of 2 over 1 nodes; its trial needs": func(v *policy.View) policy.Plan {
			return grant(v.Jobs()[0], cluster.Gang{{Node: 0, Devices: []int{0, 1}}}, v, time.Minute)
		},
		"granted devices that are not free": func(v *policy.View) policy.Plan {
			p := grant(v.Jobs()[0], cluster.Gang{{Node: 0, Devices: []int{0}}}, v, time.Minute)
			p.Grants = append(p.Grants, policy.Grant{Job: v.Jobs()[1], Gang: p.Grants[0].Gang, Reason: "too"})
			return p
		},
		"no more events after": func(*policy.View) policy.Plan { return policy.Plan{} },
	} {
		_, err := sim.Run(context.Background(), sim.Setup{
			Nodes: nodesOf(t, "gpu:2/2"), Apps: jobsOf(t, [3]float64{0, 1, 100}, [3]float64{0, 1, 100}), Control: settings(),
			Policy: func() policy.Policy { return rogue{fifo, decide} },
		})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("it says %v, want %q", err, want)
		}
	}
}
