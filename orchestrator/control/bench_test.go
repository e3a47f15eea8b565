package control_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/control"
	"github.com/outbid-dev/outbid/orchestrator/ledger"
	"github.com/outbid-dev/outbid/orchestrator/policy/baseline"
	"github.com/outbid-dev/outbid/orchestrator/sim"
	"github.com/outbid-dev/outbid/orchestrator/state"
	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/registry"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

func settings() control.Settings {
	return control.Settings{
		Lease: 15 * time.Second,
		Trust: func(string) bool { return true },
		NewTuner: func(s tuner.Settings, snapshot []byte) (tuner.Tuner, error) {
			if snapshot != nil {
				return registry.Restore(s, snapshot)
			}
			return registry.New(s)
		},
	}
}

// bench is a core with one node, and a minimal implementation of the node's side of the protocol.
type bench struct {
	core   *control.Core
	ledger *ledger.Memory
	now    time.Time
	seq    uint64
	// forks that are running, by lease ID.
	forks map[uint64]*outbidv1.ForkRef
	tb    judge
	// out is the outcome of the last step.
	out control.Outcome
}

// judge is the part of a test, a benchmark or a property that a bench needs.
type judge interface {
	Helper()
	Fatal(args ...any)
}

func newBench(tb testing.TB, devices int, spec *outbidv1.SweepSpec) *bench {
	tb.Helper()
	return benchOf(tb, control.NewCore(settings(), baseline.FIFO{}, state.New()), devices, spec)
}

func benchOf(tb judge, core *control.Core, devices int, spec *outbidv1.SweepSpec) *bench {
	tb.Helper()
	b := &bench{
		core: core, ledger: ledger.NewMemory(),
		now: time.Unix(1_700_000_000, 0), seq: 1, forks: map[uint64]*outbidv1.ForkRef{}, tb: tb,
	}
	info := &outbidv1.NodeInfo{Name: "n1", Boot: "b1"}
	for i := range devices {
		info.Devices = append(info.Devices, &outbidv1.Device{Index: int32(i), Type: "cpu"})
	}
	b.step(control.Uplink{Message: &outbidv1.Uplink{Node: "n1", Boot: "b1", Info: info}})
	b.step(control.Submit{Spec: spec, Done: func(_ string, err error) {
		if err != nil {
			tb.Fatal(err)
		}
	}})
	return b
}

func (b *bench) step(inputs ...control.Input) {
	b.now = b.now.Add(time.Millisecond)
	out, err := b.core.Step(b.now, inputs...)
	if err != nil {
		b.tb.Fatal(err)
	}
	b.out = out
	if len(out.Events) > 0 {
		batch, err := b.ledger.Append(context.Background(), b.now, out.Events)
		if err != nil {
			b.tb.Fatal(err)
		}
		b.core.Appended(batch)
	}
	for _, r := range out.Replies {
		r()
	}
	for _, o := range out.Orders {
		for _, a := range o.GetAssignments() {
			b.forks[a.GetFork().GetLeaseId()] = a.GetFork()
		}
	}
}

// say sends messages as the node.
func (b *bench) say(messages []*outbidv1.UplinkMessage) {
	up := &outbidv1.Uplink{Node: "n1", Boot: "b1", FirstSeq: b.seq, Messages: messages}
	for leaseID, f := range b.forks {
		up.Forks = append(up.Forks, &outbidv1.ForkStatus{Fork: f, Version: leaseID})
	}
	b.seq += uint64(len(messages))
	b.step(control.Uplink{Message: up})
}

func report(f *outbidv1.ForkRef, seq uint64, step int64) *outbidv1.UplinkMessage {
	return &outbidv1.UplinkMessage{Fork: f, Kind: &outbidv1.UplinkMessage_Report{Report: &outbidv1.Report{
		Seq: seq, Step: step, Metrics: map[string]float64{"loss": 1 / float64(step+1)},
	}}}
}

// BenchmarkReports measures the cost of a report in the core with a ledger in memory: 100 trials, 100 reports per
// step.
func BenchmarkReports(b *testing.B) {
	n := newBench(b, 100, sim.Sweep("s", "min", 100, sim.Tuner("random", map[string]int64{"max_steps": 1 << 30})))
	b.ReportAllocs()
	b.ResetTimer()
	for i := 0; i < b.N; i += len(n.forks) {
		var messages []*outbidv1.UplinkMessage
		for _, f := range n.forks {
			messages = append(messages, report(f, uint64(i/100+1), int64(i/100+1)))
		}
		n.say(messages)
	}
}

// turnOver makes the node finish trials of one report until the sweep has n of them.
func (b *bench) turnOver(n int) {
	for len(b.core.State().Sweeps["s-1"].Trials) < n || len(b.forks) > 0 {
		b.work()
	}
}

// work makes every fork report once and end.
func (b *bench) work() {
	var messages []*outbidv1.UplinkMessage
	for leaseID, f := range b.forks {
		messages = append(messages, report(f, 1, 1),
			&outbidv1.UplinkMessage{Fork: f, Kind: &outbidv1.UplinkMessage_Ended{Ended: &outbidv1.ForkEnded{
				Outcome: outbidv1.ForkOutcome_FORK_OUTCOME_FINISHED, Step: 1,
			}}})
		delete(b.forks, leaseID)
	}
	b.say(messages)
}

// BenchmarkOneReportTrials measures the cost of a trial in the core from creation to end.
func BenchmarkOneReportTrials(b *testing.B) {
	n := newBench(b, 16, sim.Sweep("s", "min", int32(b.N), sim.Tuner("random", nil)))
	b.ReportAllocs()
	b.ResetTimer()
	n.turnOver(b.N)
}

// A sweep of 100,000 trials fits in memory, and a snapshot of it is saved and loaded quickly.
func TestAHundredThousandTrials(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	trials := 100_000
	if raceEnabled {
		trials = 5_000 // make test also runs all of them without the race detector
	}
	n := newBench(t, 64, sim.Sweep("s", "min", int32(trials), sim.Tuner("asha", map[string]int64{"max_steps": 27})))
	n.turnOver(trials)
	var before runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	began := time.Now()
	data, err := n.core.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	made := time.Since(began)
	if err := n.ledger.SaveSnapshot(t.Context(), n.core.State().Seq, data); err != nil {
		t.Fatal(err)
	}
	began = time.Now()
	core, err := control.Restore(t.Context(), settings(), baseline.FIFO{}, n.ledger.Another(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("heap with the ledger in memory %d MiB; snapshot of %d MiB made in %s, loaded in %s",
		before.HeapAlloc>>20, len(data)>>20, made, time.Since(began))
	if got := len(core.State().Sweeps["s-1"].Trials); got != trials {
		t.Fatalf("%d trials after the restart", got)
	}
	again, err := core.Snapshot()
	if err != nil || len(again) != len(data) {
		t.Fatalf("the snapshot of the restored state has %d bytes, the first had %d: %v", len(again), len(data), err)
	}
	if got, want := fmt.Sprint(core.State().Sweeps["s-1"].Counts), fmt.Sprint(n.core.State().Sweeps["s-1"].Counts); got != want {
		t.Fatalf("counts are %s, were %s", got, want)
	}
}

// BenchmarkRestore measures how long a snapshot of 100,000 trials takes to restore.
func BenchmarkRestore(b *testing.B) {
	const trials = 100_000
	n := newBench(b, 64, sim.Sweep("s", "min", trials, sim.Tuner("random", nil)))
	n.turnOver(trials)
	data, err := n.core.Snapshot()
	if err != nil {
		b.Fatal(err)
	}
	if err := n.ledger.SaveSnapshot(b.Context(), n.core.State().Seq, data); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(len(data))/trials, "bytes/trial")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := control.Restore(b.Context(), settings(), baseline.FIFO{}, n.ledger.Another(), nil); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkFreeze measures how long the loop waits for a snapshot of 100,000 trials, and for one of the changes of 8,000
// more, which is about 50,000 events.
func BenchmarkFreeze(b *testing.B) {
	const trials, more = 100_000, 8_000
	n := newBench(b, 64, sim.Sweep("s", "min", trials+more, sim.Tuner("random", nil)))
	for len(n.core.State().Sweeps["s-1"].Trials) < trials {
		n.work()
	}
	before, err := n.core.Freeze()
	if err != nil {
		b.Fatal(err)
	}
	n.turnOver(trials + more)
	for _, since := range []*state.Saved{nil, before.Saved()} {
		b.Run(map[bool]string{true: "whole", false: "changes"}[since == nil], func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := n.core.FreezeSince(since); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
