package sim_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/control"
	"github.com/outbid-dev/outbid/orchestrator/lab"
	"github.com/outbid-dev/outbid/orchestrator/ledger"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/sim"
	"github.com/outbid-dev/outbid/orchestrator/spec"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// timesAsMany returns the number of seeds of a test: usual times OUTBID_SEEDS.
func timesAsMany(t *testing.T, usual uint64) uint64 {
	t.Helper()
	text := os.Getenv("OUTBID_SEEDS")
	if text == "" {
		return usual
	}
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		t.Fatalf("OUTBID_SEEDS is how many times as many seeds to run: %v", err)
	}
	return n * usual
}

// Random clusters, workloads and faults under every policy in turn. Each run is checked event by event (see
// invariants.go), its ledger gives the same decisions again, and a state and a policy restored from it equal those at
// the end of the run.
func TestSeeds(t *testing.T) {
	t.Parallel()
	names := lab.Policies().Names()
	seeds := timesAsMany(t, 300)
	if testing.Short() {
		seeds = 2 * uint64(len(names))
	}
	for seed := range seeds {
		name := names[seed%uint64(len(names))]
		t.Run(fmt.Sprintf("%d-%s", seed, name), func(t *testing.T) {
			t.Parallel()
			if err := runSeed(seed, name); err != nil {
				t.Fatalf("%v\nrun it again: go test ./orchestrator/sim -run '^%s$'", err,
					strings.ReplaceAll(t.Name(), "/", "$/^"))
			}
		})
	}
}

func runSeed(seed uint64, policyName string) error {
	d := dice{rand.New(rand.NewPCG(seed, 99))}
	return runSetup(d.setup(seed), policyName)
}

// The same with a network that loses, duplicates, delays and reorders messages and cuts nodes off, and an orchestrator
// that crashes. Every invariant must hold.
func TestSeedsWithFaults(t *testing.T) {
	t.Parallel()
	names := lab.Policies().Names()
	seeds := timesAsMany(t, 2*uint64(len(names)))
	if testing.Short() {
		seeds = uint64(len(names))
	}
	for seed := range seeds {
		name := names[seed%uint64(len(names))]
		t.Run(fmt.Sprintf("%d-%s", seed, name), func(t *testing.T) {
			t.Parallel()
			d := dice{rand.New(rand.NewPCG(seed, 98))}
			if err := runSetup(d.behindNetwork(d.setup(seed)), name); err != nil {
				t.Fatalf("%v\nrun it again: go test ./orchestrator/sim -run '^%s$'", err,
					strings.ReplaceAll(t.Name(), "/", "$/^"))
			}
		})
	}
}

func runSetup(set sim.Setup, policyName string) error {
	return runAndReplay(set, policyName, nil, ledger.NewMemory())
}

// runAndReplay runs a setup to its end under a policy of the registry, and replays its ledger.
func runAndReplay(set sim.Setup, policyName string, options map[string]string, kept *ledger.Memory) error {
	set.Ledger = kept
	var last policy.Policy
	set.Policy = func() policy.Policy {
		last, _ = lab.Policies().New(policyName, policy.NewOptions(options)) // the name is one of the registry's names
		return last
	}
	ctx, stop := context.WithCancelCause(context.Background())
	defer stop(nil)
	set.Progress = func(at time.Duration, done, jobs int) {
		if at > 365*24*time.Hour {
			stop(fmt.Errorf("%d of %d jobs are done after a year", done, jobs))
		}
	}
	r, err := sim.Run(ctx, set)
	if err != nil {
		return err
	}
	return again(policyName, options, kept, r, last.Snapshot)
}

// again replays the run's ledger, and restores from it.
func again(policyName string, options map[string]string, kept *ledger.Memory, r sim.Result, policyState func() ([]byte, error)) error {
	second, err := lab.Policies().New(policyName, policy.NewOptions(options))
	if err != nil {
		return err
	}
	audit, st, err := control.Replay(context.Background(), settings(), second, kept.Another())
	if err != nil {
		return err
	}
	for _, diff := range audit.Differences {
		return fmt.Errorf("%d of %d decisions differ; the first in round %d, batch %d:\nthen %s\nnow  %s", audit.Differing,
			audit.Decisions, diff.Round, diff.Seq, diff.Then, diff.Now)
	}
	if led, run := st.Snapshot(), r.State.Snapshot(); !proto.Equal(led, run) { // computing the difference takes two fifths of a run
		return fmt.Errorf("the state that the ledger leads to is another than the run's (-ledger +run):\n%s",
			cmp.Diff(led, run, protocmp.Transform()))
	}
	now, err1 := second.Snapshot()
	then, err2 := policyState()
	if !bytes.Equal(now, then) || err1 != nil || err2 != nil {
		return fmt.Errorf("the policy's state is\n%s after replay, and was\n%s (%w)", now, then, errors.Join(err1, err2))
	}
	return nil
}

// dice draws a setup.
type dice struct{ *rand.Rand }

func (d dice) between(low, high int) int { return low + d.IntN(high-low+1) }
func (d dice) chance(p float64) bool     { return d.Float64() < p }
func (d dice) oneOf(s ...string) string  { return s[d.IntN(len(s))] }
func (d dice) seconds(low, high int) time.Duration {
	return time.Duration(d.between(low, high)) * time.Second
}

func (d dice) setup(seed uint64) sim.Setup {
	set := sim.Setup{
		Nodes: d.nodes(), Control: settings(), Seed: seed, RestartDelay: d.seconds(0, 30), SaveEvery: d.seconds(30, 3600),
	}
	if d.chance(.5) {
		set.Mishaps.NodeFails, set.Mishaps.NodeBack = d.seconds(2000, 40000), d.seconds(10, 1000)
	}
	if d.chance(.4) {
		set.Mishaps.JobFails = d.seconds(500, 20000)
	}
	if d.chance(.3) {
		set.Mishaps.AppPauses, set.Mishaps.AppGoesOn = d.seconds(1000, 10000), d.seconds(10, 1000)
	}
	set.Bad = badNodes(seed, set.Nodes)
	for range d.between(1, 7) {
		set.Apps = append(set.Apps, d.app(set.Nodes, len(set.Apps)))
	}
	return set
}

// badNodes returns nodes on which trials fail for a while, in a third of the setups. They are drawn from a separate
// generator, so that the other draws of a seed do not change.
func badNodes(seed uint64, nodes []cluster.Node) []sim.BadNode {
	d := dice{rand.New(rand.NewPCG(seed, 99))}
	if !d.chance(1. / 3) {
		return nil
	}
	kinds := []outbidv1.FailureKind{
		outbidv1.FailureKind_FAILURE_KIND_NODE, outbidv1.FailureKind_FAILURE_KIND_START, outbidv1.FailureKind_FAILURE_KIND_ERROR,
	}
	var bad []sim.BadNode
	for _, n := range nodes {
		if d.chance(.4) {
			from := d.seconds(0, 3000)
			kind := d.IntN(len(kinds))
			bad = append(bad, sim.BadNode{Node: n.Name, From: from, To: from + d.seconds(1, 5000), How: kinds[kind]})
			if kind == 2 { // a trial that fails in the same way on two nodes is considered faulty itself
				kinds = kinds[:2]
			}
		}
	}
	return bad
}

// faster is the factor that shortens everything with a network, where each second costs heartbeats.
const faster = 20

// behindNetwork makes a setup run with a faulty network, and faster.
func (d dice) behindNetwork(set sim.Setup) sim.Setup {
	f := sim.Faults{Late: time.Duration(d.between(1, 500)) * time.Millisecond}
	if d.chance(.5) {
		f.Lose, f.Double = .1*d.Float64(), .1*d.Float64()
	}
	if d.chance(.5) {
		f.CutOff, f.CutFor, f.Cuts = d.seconds(30, 300), d.seconds(1, 40), 100
	}
	if d.chance(.5) {
		set.Mishaps.OrchestratorFails = d.seconds(10, 200)
	}
	set.Transport, set.SnapshotEvery = sim.Network(f), d.between(1, 20)
	m := &set.Mishaps
	for _, mean := range []*time.Duration{&m.NodeFails, &m.NodeBack, &m.JobFails, &m.AppPauses, &m.AppGoesOn, &set.RestartDelay, &set.SaveEvery} {
		*mean /= faster
	}
	for i := range set.Apps {
		a := &set.Apps[i]
		a.Submit /= faster
		for k := range a.Jobs {
			a.Jobs[k].Isolated /= faster
			for n := range a.Jobs[k].Speeds.Measured {
				a.Jobs[k].Speeds.Measured[n].Rate *= faster
			}
		}
		for _, h := range a.Spec.GetThroughputs() {
			h.StepsPerSecond *= faster
		}
	}
	return set
}

func (d dice) nodes() []cluster.Node {
	var nodes []cluster.Node
	kinds := []string{"v100", "p100", "k80"}[:d.between(1, 3)]
	for i := range d.between(1, 6) {
		rack := d.oneOf("", "r1", "r2")
		nodes = append(nodes, d.node(i, rack, d.oneOf(kinds...)))
	}
	return nodes
}

// node returns a node with devices of a type.
func (d dice) node(i int, rack, kind string) cluster.Node {
	n, perSlot := cluster.Node{Name: fmt.Sprintf("n%d", i), Rack: rack}, d.between(1, 4)
	if d.chance(.3) {
		n.CPUs, n.Memory = float64(d.between(8, 64)), int64(d.between(8, 64))<<30
	}
	for k := range d.between(1, 8) {
		speed := 1.0
		if d.chance(.1) {
			speed = .5
		}
		n.Devices = append(n.Devices, cluster.Device{Index: k, Type: kind, Slot: k / perSlot, Speed: speed})
	}
	return n
}

func (d dice) app(nodes []cluster.Node, i int) sim.App {
	kind := d.oneOf("one", "one", "one", "random", "halving", "hyperband", "asha", "asha-stop", "median", "pbt", "performance")
	steps := int64(d.between(9, 5000))
	trials := d.between(3, 9)
	if kind == "one" {
		trials = 1
	} else if kind == "halving" {
		trials = 9
	}
	s := sim.Sweep(fmt.Sprintf("%s%d", kind, i), d.oneOf("min", "max"), int32(trials), sim.Tuner(kind, map[string]int64{
		"max_steps": steps, "eta": 3, "min_steps": max(1, steps/9), "trials": int64(trials), "seed": int64(d.IntN(1000)),
	}))
	s.Tenant, s.Weight = d.oneOf("a", "b", "c"), float64(d.between(0, 3))
	s.Resources = d.resources(nodes)
	s.GetProgram().Command = []string{"train"}
	if d.chance(.2) {
		s.Limits.Concurrency = int32(d.between(1, 4))
	}
	a := sim.App{Spec: s, Submit: time.Duration(d.IntN(3000)) * time.Second}
	if d.chance(.2) {
		a.Submit = 0
	}
	for n := range trials {
		a.Jobs = append(a.Jobs, d.job(s, nodes, steps, n))
	}
	spec.Default(s)
	return a
}

// resources returns a demand that the whole cluster could meet.
func (d dice) resources(nodes []cluster.Node) *outbidv1.Resources {
	for {
		least := []int{1, 1, 1, 2, 3, 4, 8}[d.IntN(7)]
		r := &outbidv1.Resources{
			Devices: &outbidv1.DeviceCount{Min: int32(least), Max: int32(least)}, Spread: d.chance(.6), Mixed: d.chance(.1),
		}
		if d.chance(.4) {
			r.Devices.Max += int32(d.IntN(6))
		}
		if d.chance(.2) {
			r.Types = []string{d.oneOf("v100", "p100", "k80"), d.oneOf("v100", "p100", "k80")}
		}
		if d.chance(.1) {
			r.ExcludeTypes = []string{d.oneOf("v100", "p100", "k80")}
		}
		if d.chance(.15) {
			r.Cpus, r.Memory = float64(d.between(1, 8)), fmt.Sprintf("%dGiB", d.between(1, 8))
		}
		demand := cluster.Demand{
			Min: least, Max: int(r.GetDevices().GetMax()), Types: r.GetTypes(), Exclude: r.GetExcludeTypes(),
			MultiNode: r.GetSpread(), Mixed: r.GetMixed(), CPUs: r.GetCpus(), Memory: 8 << 30,
		}
		if _, ok := cluster.NewCapacity(nodes).Best(demand); ok {
			return r
		}
	}
}

func (d dice) job(s *outbidv1.SweepSpec, nodes []cluster.Node, steps int64, n int) sim.Job {
	j := sim.Job{Speeds: &cluster.Speeds{}, Steps: steps, Isolated: float64(d.between(60, 6000))}
	most := max(1, int(s.GetResources().GetDevices().GetMax()))
	rate := float64(steps) / j.Isolated
	for _, kind := range []string{"v100", "p100", "k80"} {
		m := cluster.Speed{Type: kind, Devices: most, Locality: cluster.SameMachine, Rate: rate * (.2 + .8*d.Float64())}
		j.Speeds.Measured = append(j.Speeds.Measured, m)
		if d.chance(.8) { // policies learn the other speeds only from reports
			number := int32(n)
			s.Throughputs = append(s.Throughputs, &outbidv1.Throughput{
				Type: kind, Devices: int32(most), Spread: m.Locality.String(), StepsPerSecond: m.Rate, Trial: &number,
			})
		}
	}
	if d.chance(.2) {
		j.Steps = steps * int64(d.between(50, 150)) / 100 // its code ends before its target, or the other way round
	}
	if s.GetTuner().GetRandom() == nil || d.chance(.5) {
		best, bend := d.Float64(), float64(steps)*(.05+d.Float64())
		j.Loss = func(step float64) float64 { return best + math.Exp(-step/bend) }
		j.Reports = d.between(1, 20)
	}
	return j
}
