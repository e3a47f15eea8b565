package sim_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outbid-dev/outbid/orchestrator/control"
	"github.com/outbid-dev/outbid/orchestrator/lab"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/sim"
	"github.com/outbid-dev/outbid/orchestrator/sim/measure"
	"github.com/outbid-dev/outbid/orchestrator/state"
	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/registry"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

func settings() control.Settings {
	return control.Settings{
		Lease: 15 * time.Second,
		NewTuner: func(s tuner.Settings, snapshot []byte) (tuner.Tuner, error) {
			if snapshot != nil {
				return registry.Restore(s, snapshot)
			}
			return registry.New(s)
		},
	}
}

// policyOf returns a function that creates a policy of the registry.
func policyOf(t *testing.T, name string) func() policy.Policy {
	t.Helper()
	return func() policy.Policy {
		p, err := lab.Policies().New(name, nil)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
}

// newWorld returns a world with a network, whose trials train step by step unless the setup has another model.
func newWorld(t *testing.T, set sim.Setup, policyName string) *sim.World {
	t.Helper()
	set.Control, set.Policy = settings(), policyOf(t, policyName)
	if set.Transport == nil {
		set.Transport = sim.Network(sim.Faults{})
	}
	if set.Model == nil {
		set.Model = sim.Steps{}
	}
	w, err := sim.New(set)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func TestScripts(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.script")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".script"), func(t *testing.T) {
			t.Parallel()
			f, err := os.Open(file)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if err := sim.Script(newWorld(t, sim.Setup{SnapshotEvery: 3}, "drf"), f); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
		})
	}
}

// A scenario is the sweeps and the cluster of a seed.
type scenario struct {
	nodes  map[string]int
	sweeps []*outbidv1.SweepSpec
}

func scenarioOf(seed uint64) scenario {
	s := scenario{nodes: map[string]int{"a": 1 + int(seed%4), "b": 1 + int(seed/4%3)}}
	if seed%4 == 3 { // gangs over nodes with one device each
		s.nodes = map[string]int{"a": 1, "b": 1, "c": 1, "d": 1, "e": 1 + int(seed/4%2)}
	}
	names := []string{"halving", "hyperband", "asha", "asha-stop", "median", "random", "pbt"}
	for i := range 1 + int(seed/12%3) {
		name := names[(seed+uint64(i)*3)%uint64(len(names))]
		spec := sim.Sweep(fmt.Sprintf("s%d", i), "max", int32(9+seed%8), sim.Tuner(name, map[string]int64{
			"max_steps": 9, "eta": 3, "seed": int64(seed), "trials": 9 + int64(seed%8),
		}))
		if seed%4 == 3 {
			n := int32(2 + (seed/8+uint64(i))%3)
			spec.Resources = &outbidv1.Resources{Devices: &outbidv1.DeviceCount{Min: n, Max: n + int32(seed/16%2)}, Spread: true}
		}
		s.sweeps = append(s.sweeps, spec)
	}
	return s
}

// trouble is the faults of a run: those of messages and others.
type trouble struct {
	faults  sim.Faults
	mishaps sim.Mishaps
}

func run(t *testing.T, seed uint64, of trouble) *sim.World {
	t.Helper()
	name := lab.Policies().Names()[seed%uint64(len(lab.Policies().Names()))]
	w := newWorld(t, sim.Setup{
		Seed: seed, Transport: sim.Network(of.faults), Mishaps: of.mishaps, Model: sim.Steps{Time: 2 * time.Second}, SnapshotEvery: 7,
	}, name)
	sc := scenarioOf(seed)
	for _, name := range slices.Sorted(maps.Keys(sc.nodes)) {
		w.AddNode(name, "gpu", sc.nodes[name], 1)
	}
	for _, spec := range sc.sweeps {
		if _, err := w.Submit(spec); err != nil {
			t.Fatalf("seed %d: submit: %v", seed, err)
		}
	}
	if err := w.Run(48 * time.Hour); err != nil {
		t.Fatalf("seed %d, policy %s: %v", seed, name, err)
	}
	decidesAgain(t, seed, name, w)
	return w
}

// decidesAgain replays the world's ledger: crashes of the orchestrator change no decision.
func decidesAgain(t *testing.T, seed uint64, policyName string, w *sim.World) {
	t.Helper()
	p, err := lab.Policies().New(policyName, nil)
	if err != nil {
		t.Fatal(err)
	}
	audit, _, err := control.Replay(context.Background(), settings(), p, w.Ledger())
	if err != nil {
		t.Fatalf("seed %d, policy %s: %v", seed, policyName, err)
	}
	for _, d := range audit.Differences {
		t.Fatalf("seed %d, policy %s: %d decisions differ; in round %d, batch %d:\nthen %s\nnow  %s", seed, policyName, audit.Differing,
			d.Round, d.Seq, d.Then, d.Now)
	}
}

// outcome returns the steps and the final states of the trials of synchronous tuners.
func outcome(st *state.State) map[string][]string {
	result := map[string][]string{}
	for _, id := range st.SweepIDs {
		s := st.Sweeps[id]
		name := s.ID
		if s.Spec.GetTuner().GetHyperband() == nil && s.Spec.GetTuner().GetSuccessiveHalving() == nil &&
			s.Spec.GetTuner().GetRandom() == nil {
			continue
		}
		for _, t := range s.Trials {
			result[name] = append(result[name], fmt.Sprintf("%s %s step %d best %.6f", t.Config, state.TrialWord(t.State), t.MaxStep, t.Best))
		}
		slices.Sort(result[name]) // Hyperband's brackets start in the order in which devices become free
	}
	return result
}

// troubles returns each kind of fault, and all together.
func troubles() []trouble {
	return []trouble{
		{faults: sim.Faults{Lose: 0.1, Double: 0.1, Late: 3 * time.Second}},
		{mishaps: sim.Mishaps{OrchestratorFails: 20 * time.Second}},
		{mishaps: sim.Mishaps{NodeFails: 100 * time.Second, NodeBack: 30 * time.Second}},
		{mishaps: sim.Mishaps{JobFails: 40 * time.Second}},
		{faults: sim.Faults{CutOff: 100 * time.Second, CutFor: 15 * time.Second, Late: 500 * time.Millisecond}},
		{
			faults: sim.Faults{Lose: 0.05, Double: 0.05, Late: time.Second},
			mishaps: sim.Mishaps{
				JobFails: 100 * time.Second, NodeFails: 300 * time.Second, NodeBack: 30 * time.Second, OrchestratorFails: 50 * time.Second,
			},
		},
	}
}

// With any faults, every sweep ends, no invariant is violated (World checks them after each batch), and synchronous
// tuners end with the same trials trained equally far as without faults.
func TestFaultsChangeNothing(t *testing.T) {
	t.Parallel()
	seeds := timesAsMany(t, 120)
	if testing.Short() {
		seeds = 20
	}
	all := troubles()
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			calm := run(t, seed, trouble{})
			rough := run(t, seed, all[seed%uint64(len(all))])
			if diff := cmp.Diff(outcome(calm.State()), outcome(rough.State())); diff != "" {
				t.Fatalf("seed %d: faults changed the outcome:\n%s", seed, diff)
			}
		})
	}
}

func TestTheSameSeedGivesTheSameRun(t *testing.T) {
	t.Parallel()
	all := troubles()
	for seed := range uint64(8) {
		a, b := run(t, seed, all[len(all)-1]), run(t, seed, all[len(all)-1])
		if a.Now() != b.Now() || string(a.State().Hash) != string(b.State().Hash) {
			t.Fatalf("seed %d: two runs end at %s and %s", seed, a.Now(), b.Now())
		}
	}
}

// A finished sweep can be extended repeatedly by more trials and more steps.
func TestAFinishedSweepCanBeExtended(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"random", "asha", "asha-stop", "halving", "hyperband", "median", "pbt"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, sim.Setup{
				Seed: 3, Model: sim.Steps{Time: time.Second}, SnapshotEvery: 5, Mishaps: sim.Mishaps{OrchestratorFails: 50 * time.Second},
			}, "drf")
			w.AddNode("a", "gpu", 3, 1)
			id, err := w.Submit(sim.Sweep("s", "max", 9, sim.Tuner(name, map[string]int64{"max_steps": 9, "eta": 3, "trials": 9})))
			if err != nil {
				t.Fatal(err)
			}
			if err := w.Run(24 * time.Hour); err != nil {
				t.Fatal(err)
			}
			before := w.State().Sweeps[id]
			steps, best, trials := before.Steps, before.Trials[before.Best].Best, len(before.Trials)
			more, longer := int32(27), int64(27)
			for w.State().Sweeps[id].Done() {
				w.Do(control.Extend{
					Request: &outbidv1.ExtendSweepRequest{Sweep: id, Trials: &more, MaxSteps: &longer}, Actor: "sim",
					Done: func(_ []*outbidv1.TrainedAgain, err error) {
						if err != nil {
							t.Errorf("extend: %v", err)
						}
					},
				})
				if t.Failed() {
					return
				}
			}
			if err := w.Run(24 * time.Hour); err != nil {
				t.Fatal(err)
			}
			s := w.State().Sweeps[id]
			if s.State != outbidv1.SweepState_SWEEP_STATE_DONE {
				t.Fatalf("it is %s: %s", state.SweepWord(s.State), s.Reason)
			}
			longest := int64(0)
			for _, trial := range s.Trials {
				longest = max(longest, trial.MaxStep)
			}
			if len(s.Trials) <= trials || s.Steps <= steps || longest != 27 || s.Trials[s.Best].Best < best {
				t.Fatalf("after: %d trials, %d steps, longest %d, best %g; before %d, %d, %g",
					len(s.Trials), s.Steps, longest, s.Trials[s.Best].Best, trials, steps, best)
			}
		})
	}
}

// Policies see the tenants of a trace with their weights, like those that an administrator adds to a server.
func TestTenantsOfATraceAreAdded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sim.Setup{Tenants: []measure.Tenant{{Name: "heavy", Weight: 3}}}, "drf")
	w.AddNode("a", "gpu", 1, 1)
	if got := w.State().Tenant("heavy").GetWeight(); got != 3 {
		t.Errorf("the tenant weighs %g in the state, want 3", got)
	}
}
