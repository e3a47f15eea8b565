package sim_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/control"
	"github.com/outbid-dev/outbid/orchestrator/ledger"
	"github.com/outbid-dev/outbid/orchestrator/policy/registry"
	"github.com/outbid-dev/outbid/orchestrator/sim"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// kept is the ledger of a run.
func kept(t *testing.T, policyName string, set sim.Setup) (*ledger.Memory, sim.Result) {
	t.Helper()
	m := ledger.NewMemory()
	set.Ledger = m
	r := simulate(t, policyName, set)
	return m.Another(), r
}

// What happened, run again under the policy that it happened under, comes out the same but for what is not in a ledger.
func TestThePastRunsAgain(t *testing.T) {
	t.Parallel()
	nodes := nodesOf(t, "fast:2/2,slow:2/1")
	apps := jobsOf(t, [3]float64{0, 1, 500}, [3]float64{10, 2, 300}, [3]float64{20, 2, 400}, [3]float64{100, 1, 50}, [3]float64{700, 4, 10})
	for i := range apps {
		apps[i].Spec.Resources.Mixed = true
		for k := range apps[i].Jobs {
			m := apps[i].Jobs[k].Speeds.Measured[0]
			apps[i].Jobs[k].Speeds.Measured = []cluster.Speed{
				{Type: "fast", Devices: m.Devices, Locality: m.Locality, Rate: m.Rate},
				{Type: "slow", Devices: m.Devices, Locality: m.Locality, Rate: m.Rate / 2},
			}
			apps[i].Spec.Throughputs = nil
			for _, m := range apps[i].Jobs[k].Speeds.Measured {
				apps[i].Spec.Throughputs = append(apps[i].Spec.Throughputs, &outbidv1.Throughput{
					Type: m.Type, Devices: int32(m.Devices), StepsPerSecond: m.Rate,
				})
			}
		}
	}
	apps = append(apps, exploration("halving", 9), exploration("asha", 9))
	for _, name := range []string{"fifo", "tiresias", "themis"} {
		record, was := kept(t, name, sim.Setup{Nodes: nodes, Apps: apps, RestartDelay: 10 * time.Second, Stays: []sim.Stay{
			{Node: nodes[0].Name, To: 200 * time.Second}, {Node: nodes[0].Name, From: 260 * time.Second},
		}})
		past, err := sim.ReadPast(context.Background(), record)
		if err != nil {
			t.Fatal(err)
		}
		if past.Policy != name || len(past.Apps) != len(apps) || len(past.Nodes) != len(nodes) || len(past.Stays) != 1+len(nodes) {
			t.Fatalf("%s: %d apps on %d nodes with %d stays", past.Policy, len(past.Apps), len(past.Nodes), len(past.Stays))
		}
		again := simulate(t, name, past.Setup())
		if d := math.Abs(again.JCTMean/was.JCTMean - 1); d > .05 || again.Jobs != was.Jobs {
			t.Errorf("%s: %d jobs of %g s on average, and were %d of %g s", name, again.Jobs, again.JCTMean, was.Jobs, was.JCTMean)
		}
	}
}

// A trial reports what it did, on a line between two reports; beyond the last it holds that.
func TestThePastReportsWhatWasReported(t *testing.T) {
	t.Parallel()
	a := exploration("random", 1)
	a.Jobs[0].Every = 3
	a.Jobs[0].Loss = func(step float64) float64 { return step * step }
	record, _ := kept(t, "fifo", sim.Setup{Nodes: nodesOf(t, "gpu:1/1"), Apps: []sim.App{a}})
	past, err := sim.ReadPast(context.Background(), record)
	if err != nil {
		t.Fatal(err)
	}
	loss := past.Apps[0].Jobs[0].Loss
	for step, want := range map[float64]float64{1: 9, 3: 9, 4: 9 + 27/3., 6: 36, 9: 81, 20: 81} {
		if got := loss(step); math.Abs(got-want) > 1e-9 {
			t.Errorf("at step %g it reports %g, want %g", step, got, want)
		}
	}
	if rate := past.Apps[0].Jobs[0].Speeds.Rate("gpu", 1, cluster.SameMachine); math.Abs(rate-.1) > 1e-9 {
		t.Errorf("it does %g steps a second", rate)
	}
}

// Forks are not simulated: who runs such a past again is told, and one process trains each trial.
func TestAPastWithForksSaysThatOneProcessTrainsEachTrial(t *testing.T) {
	t.Parallel()
	a := exploration("random", 2)
	a.Spec.Resources.Forks = "auto"
	record, _ := kept(t, "hadare", sim.Setup{Nodes: nodesOf(t, "gpu:1/1"), Apps: []sim.App{a}}) // on one node nothing forks
	past, err := sim.ReadPast(context.Background(), record)
	if err != nil {
		t.Fatal(err)
	}
	said := "1 sweeps whose trials may be trained by several forks; here one process trains each trial"
	if forks := past.Apps[0].Spec.GetResources().GetForks(); forks != "" || !slices.Contains(past.Assumptions, said) {
		t.Errorf("forks %q, and it assumes %q", forks, past.Assumptions)
	}
	if again := simulate(t, "fifo", past.Setup()); again.Jobs != 2 {
		t.Errorf("%d jobs ran", again.Jobs)
	}
}

func TestAnEmptyPast(t *testing.T) {
	t.Parallel()
	if _, err := sim.ReadPast(context.Background(), ledger.NewMemory()); !errors.Is(err, sim.ErrNothingRan) {
		t.Error(err)
	}
}

// A ledger in which one grant was written otherwise still holds together, and replay names that grant.
func TestReplayNamesATamperedGrant(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"fifo", "tiresias", "gavel-las", "themis"} {
		record, _ := kept(t, name, sim.Setup{
			Nodes: nodesOf(t, "gpu:2/2"), Apps: jobsOf(t, [3]float64{0, 1, 100}, [3]float64{200, 1, 50}, [3]float64{400, 1, 50}),
		})
		tampered := ledger.NewMemory()
		grants := 0
		if err := record.Read(context.Background(), 1, func(b *outbidv1.Batch) error {
			events, err := ledger.Decode(b)
			if err != nil {
				return err
			}
			for i, e := range events {
				if e.GetLeaseGranted() == nil {
					continue
				}
				if grants++; grants == 2 {
					events[i] = proto.CloneOf(e)
					events[i].GetLeaseGranted().Reason = "a friend asked for it"
				}
			}
			_, err = tampered.Append(context.Background(), b.GetTime().AsTime(), events)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		p, err := registry.New(name, nil)
		if err != nil {
			t.Fatal(err)
		}
		audit, _, err := control.Replay(context.Background(), settings(), p, tampered.Another())
		if err != nil {
			t.Fatal(err)
		}
		if audit.Differing != 1 || !strings.Contains(audit.Differences[0].Then, "a friend asked for it") ||
			!strings.Contains(audit.Differences[0].Now, "lease_granted") {
			t.Errorf("%s: it found %+v", name, audit.Differences)
		}
	}
}
