package sim_test

import (
	"cmp"
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
	"github.com/outbid-dev/outbid/orchestrator/lab"
	"github.com/outbid-dev/outbid/orchestrator/ledger"
	"github.com/outbid-dev/outbid/orchestrator/sim"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// kept returns the ledger of a run.
func kept(t *testing.T, policyName string, set sim.Setup) (*ledger.Memory, sim.Result) {
	t.Helper()
	m := ledger.NewMemory()
	set.Ledger = m
	r := simulate(t, policyName, set)
	return m.Another(), r
}

// A recording that is simulated under its own policy gives the same results, except for values that a ledger lacks.
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
		recording, err := sim.ReadRecording(context.Background(), record)
		if err != nil {
			t.Fatal(err)
		}
		if recording.Policy != name || len(recording.Apps) != len(apps) || len(recording.Nodes) != len(nodes) || len(recording.Stays) != 1+len(nodes) {
			t.Fatalf("%s: %d apps on %d nodes with %d stays", recording.Policy, len(recording.Apps), len(recording.Nodes), len(recording.Stays))
		}
		again := simulate(t, name, recording.Setup(policyOf(t, name)()))
		if d := math.Abs(again.JCTMean/was.JCTMean - 1); d > .05 || again.Jobs != was.Jobs {
			t.Errorf("%s: %d jobs of %g s on average, and were %d of %g s", name, again.Jobs, again.JCTMean, was.Jobs, was.JCTMean)
		}
	}
}

// A server that stops after its sweeps and starts again, as in a notebook, has the same node again. The node's first
// visit lasts until the simulated sweeps have ended, so its later one is left out.
func TestANodeThatComesBackAfterTheWorkIsThereOnce(t *testing.T) {
	t.Parallel()
	record, _ := kept(t, "fifo", sim.Setup{Nodes: nodesOf(t, "gpu:1/1"), Apps: jobsOf(t, [3]float64{0, 1, 50})})
	var joined *outbidv1.NodeJoined
	var last *outbidv1.Batch
	err := record.Read(t.Context(), 1, func(b *outbidv1.Batch) error {
		last = b
		events, err := ledger.Decode(b)
		for _, e := range events {
			joined = cmp.Or(joined, e.GetNodeJoined())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	record.Resume(last.GetSeq(), last.GetHash())
	left := &outbidv1.NodeChanged{Node: joined.GetNode().GetName(), State: outbidv1.NodeState_NODE_STATE_LEFT}
	for i, e := range []*outbidv1.Event{
		{Kind: &outbidv1.Event_NodeChanged{NodeChanged: left}},
		{Kind: &outbidv1.Event_NodeJoined{NodeJoined: joined}},
		{Kind: &outbidv1.Event_NodeChanged{NodeChanged: left}},
	} {
		at := last.GetTime().AsTime().Add(time.Duration(i+1) * 10 * time.Second)
		if _, err := record.Append(t.Context(), at, []*outbidv1.Event{e}); err != nil {
			t.Fatal(err)
		}
	}
	recording, err := sim.ReadRecording(t.Context(), record)
	if err != nil {
		t.Fatal(err)
	}
	if len(recording.Stays) != 1 || recording.Stays[0].To != 0 {
		t.Errorf("stays %+v; want one without an end", recording.Stays)
	}
	set := recording.Setup(policyOf(t, "las")())
	set.Apps[0].Jobs[0].Speeds.Measured[0].Rate /= 4 // it is there for longer than the node was
	if r := simulate(t, "las", set); r.Jobs != 1 || r.Unfinished != 0 {
		t.Errorf("%d sweeps, %d of them have not ended", r.Jobs, r.Unfinished)
	}
}

// Trials without a number of steps end by themselves, also those that were stopped or still ran in the ledger.
func TestTrialsWithoutStepsEndInASimulation(t *testing.T) {
	t.Parallel()
	app := exploration("random", 30)
	app.Spec = sim.Sweep("app", "min", 30, sim.Tuner("auto", map[string]int64{"trials": 30, "seed": 1}))
	for i := range app.Jobs {
		app.Jobs[i].Steps = 60
	}
	record, _ := kept(t, "fifo", sim.Setup{Nodes: nodesOf(t, "gpu:2/1"), Apps: []sim.App{app}})
	last, err := record.Last(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	half := ledger.NewMemory()
	err = record.Read(t.Context(), 1, func(b *outbidv1.Batch) error {
		events, err := ledger.Decode(b)
		if err == nil && b.GetSeq() < last/2 {
			_, err = half.Append(t.Context(), b.GetTime().AsTime(), events)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	recording, err := sim.ReadRecording(t.Context(), half)
	if err != nil {
		t.Fatal(err)
	}
	for i, j := range recording.Apps[0].Jobs {
		if j.Steps != 60 {
			t.Errorf("trial %d ends after %d steps (0 is never); want 60", i, j.Steps)
		}
	}
	if r := simulate(t, "las", recording.Setup(policyOf(t, "las")())); r.Unfinished > 0 {
		t.Errorf("%d trials have not ended", r.Unfinished)
	}
}

// A simulation of a ledger changes a sweep's weight when a person did.
func TestAnotherWeightIsGivenAgain(t *testing.T) {
	t.Parallel()
	var apps []sim.App
	for i := range 4 {
		apps = append(apps, exploration("random", 90))
		apps[i].Submit = time.Duration(i) * 10 * time.Second
	}
	even, _ := kept(t, "themis", sim.Setup{Nodes: nodesOf(t, "gpu:1/1"), Apps: apps})
	apps[2].Commands = []sim.Command{{At: time.Hour, Weight: 8}}
	record, was := kept(t, "themis", sim.Setup{Nodes: nodesOf(t, "gpu:1/1"), Apps: apps})
	ends := func(l ledger.Ledger) (all []float64, commands []sim.Command) {
		recording, err := sim.ReadRecording(t.Context(), l)
		if err != nil {
			t.Fatal(err)
		}
		again := simulate(t, "themis", recording.Setup(policyOf(t, "themis")()))
		for _, s := range again.State.Sweeps {
			if s.Spec.GetLabels()["replayed"] == was.State.SweepIDs[2] {
				all = append(all, s.Ended.Sub(s.Submitted).Seconds())
				if w := s.Spec.GetWeight(); len(recording.Apps[2].Commands) > 0 && w != 8 || recording.Apps[2].Spec.GetWeight() > 1 {
					t.Errorf("it has weight %v in the end, %v at first", w, recording.Apps[2].Spec.GetWeight())
				}
			}
		}
		for _, a := range recording.Assumptions {
			if strings.Contains(a, "extensions") {
				t.Errorf("it assumes %s", a)
			}
		}
		return all, recording.Apps[2].Commands
	}
	before, _ := ends(even)
	after, commands := ends(record)
	if len(commands) != 1 || commands[0].Weight != 8 || commands[0].At < time.Hour || commands[0].At > time.Hour+time.Minute {
		t.Errorf("the commands are %+v", commands)
	}
	then := was.State.Sweeps[was.State.SweepIDs[2]]
	if len(before) != 1 || len(after) != 1 || after[0] >= before[0] || math.Abs(after[0]/then.Ended.Sub(then.Submitted).Seconds()-1) > .05 {
		t.Errorf("it ended after %v s with another weight, %v s without, and %s in the ledger", after, before, then.Ended.Sub(then.Submitted))
	}
}

// A replayed trial reports what it reported, interpolated between two reports; after the last report the value is
// constant.
func TestThePastReportsWhatWasReported(t *testing.T) {
	t.Parallel()
	a := exploration("random", 1)
	a.Jobs[0].Every = 3
	a.Jobs[0].Loss = func(step float64) float64 { return step * step }
	record, _ := kept(t, "fifo", sim.Setup{Nodes: nodesOf(t, "gpu:1/1"), Apps: []sim.App{a}})
	recording, err := sim.ReadRecording(context.Background(), record)
	if err != nil {
		t.Fatal(err)
	}
	loss := recording.Apps[0].Jobs[0].Loss
	for step, want := range map[float64]float64{1: 9, 3: 9, 4: 9 + 27/3., 6: 36, 9: 81, 20: 81} {
		if got := loss(step); math.Abs(got-want) > 1e-9 {
			t.Errorf("at step %g it reports %g, want %g", step, got, want)
		}
	}
	if rate := recording.Apps[0].Jobs[0].Speeds.Rate("gpu", 1, cluster.SameMachine); math.Abs(rate-.1) > 1e-9 {
		t.Errorf("it does %g steps a second", rate)
	}
}

// forkedJobs returns jobs of 3,600 steps that may be forked. They do 4, 2 and 1 steps a second on a v100, a p100 and a
// k80.
func forkedJobs(t *testing.T, jobs int) []sim.App {
	t.Helper()
	var apps []sim.App
	for range jobs {
		a := jobsOf(t, [3]float64{0, 1, 900})[0]
		a.Spec.Resources.Spread, a.Spec.Resources.Forks = false, "auto"
		a.Spec.Tuner = sim.Tuner("random", map[string]int64{"max_steps": 3600})
		a.Spec.Throughputs, a.Jobs[0].Speeds.Measured, a.Jobs[0].Steps = nil, nil, 3600
		a.Jobs[0].Reports, a.Jobs[0].Loss = 9, func(step float64) float64 { return 1 / (1 + step) }
		for kind, rate := range map[string]float64{"v100": 4, "p100": 2, "k80": 1} {
			a.Spec.Throughputs = append(a.Spec.Throughputs, &outbidv1.Throughput{Type: kind, Devices: 1, StepsPerSecond: rate})
			a.Jobs[0].Speeds.Measured = append(a.Jobs[0].Speeds.Measured, cluster.Speed{Type: kind, Devices: 1, Rate: rate})
		}
		apps = append(apps, a)
	}
	return apps
}

// A recording with forks gives the same results under a policy with forks. Under a policy without forks, one process
// trains each trial, and the assumptions say so.
func TestAPastWithForksRunsAgain(t *testing.T) {
	t.Parallel()
	record, was := kept(t, "hadare", sim.Setup{
		Nodes: nodesOf(t, "v100:1/1,p100:1/1,k80:1/1"), Apps: forkedJobs(t, 2), RestartDelay: 5 * time.Second,
		Forks: sim.ForkCosts{Upload: 2 * time.Second, Average: 3 * time.Second},
	})
	recording, err := sim.ReadRecording(context.Background(), record)
	if err != nil {
		t.Fatal(err)
	}
	said := "2 sweeps whose trials may be trained by several forks, which save and are averaged as fast as here on average; under a policy " +
		"that forks none one process trains each trial"
	if recording.Forks != (sim.ForkCosts{Upload: 2 * time.Second, Average: 3 * time.Second}) || !slices.Contains(recording.Assumptions, said) {
		t.Errorf("rounds took %+v, and it assumes %q", recording.Forks, recording.Assumptions)
	}
	for name, forked := range map[string]bool{"hadare": true, "fifo": false} {
		record, again := kept(t, name, recording.Setup(policyOf(t, name)()))
		if d := math.Abs(again.JCTMean/was.JCTMean - 1); again.Jobs != 2 || d > .05 == forked {
			t.Errorf("%s: %d jobs of %g s on average, and were 2 of %g s", name, again.Jobs, again.JCTMean, was.JCTMean)
		}
		if got := averages(t, record); got > 0 != forked {
			t.Errorf("%s: %d averages", name, got)
		}
	}
}

// averages counts the fork slots of a ledger that ended with the steps of several forks.
func averages(t testing.TB, l ledger.Ledger) (n int) {
	t.Helper()
	if err := l.Read(context.Background(), 1, func(b *outbidv1.Batch) error {
		events, err := ledger.Decode(b)
		for _, e := range events {
			if len(e.GetForksEnded().GetForks()) > 1 {
				n++
			}
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return n
}

// verdicts counts the averages that were judged according to a ledger: those that were kept, and those that were
// dropped.
func verdicts(t testing.TB, l ledger.Ledger) (kept, dropped int64) {
	t.Helper()
	if err := l.Read(context.Background(), 1, func(b *outbidv1.Batch) error {
		events, err := ledger.Decode(b)
		for _, e := range events {
			switch e.GetMergeJudged().GetVerdict() {
			case outbidv1.MergeVerdict_MERGE_VERDICT_KEPT:
				kept++
			case outbidv1.MergeVerdict_MERGE_VERDICT_DROPPED:
				dropped++
			}
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return kept, dropped
}

func TestAnEmptyPast(t *testing.T) {
	t.Parallel()
	if _, err := sim.ReadRecording(context.Background(), ledger.NewMemory()); !errors.Is(err, sim.ErrNothingRan) {
		t.Error(err)
	}
}

// A ledger with a changed grant is still consistent, and the replay reports that grant.
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
		p, err := lab.Policies().New(name, nil)
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
