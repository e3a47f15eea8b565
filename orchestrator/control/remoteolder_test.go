package control_test

import (
	"context"
	"maps"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/outbid-dev/outbid/orchestrator/control"
	"github.com/outbid-dev/outbid/orchestrator/ledger"
	"github.com/outbid-dev/outbid/orchestrator/policy/baseline"
	"github.com/outbid-dev/outbid/orchestrator/sim"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// A ledger of a version that waited for every answer of a remote tuner can be continued: the events in it count as
// answered, and the process gets them again before new questions.
func TestALedgerWithoutAnswersCanBeContinued(t *testing.T) {
	t.Parallel()
	tune := map[string]int64{"max_steps": 4, "eta": 2, "trials": 4, "min_steps": 1, "seed": 1}
	b := newBench(t, 1, sim.Sweep("s", "min", 3, sim.Tuner("random", tune)))
	b.complete()
	want := b.core.State().Sweeps["s-1"] // its second trial runs
	old := ledger.NewMemory()
	if err := b.ledger.Read(t.Context(), 1, func(batch *outbidv1.Batch) error {
		events, err := ledger.Decode(batch)
		for i, e := range events {
			events[i] = proto.CloneOf(e)
			if s := events[i].GetSweepSubmitted(); s != nil {
				s.Spec.Tuner = outside("random", 4, 1)
			}
		}
		if err == nil {
			_, err = old.Append(t.Context(), batch.GetTime().AsTime(), events)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	core, err := control.Restore(context.Background(), settings(), baseline.FIFO{}, old.Another(), nil)
	if err != nil {
		t.Fatal(err)
	}
	r := core.Remote("s-1")
	if r == nil || len(r.Open()) != 0 || r.Answered() == 0 || len(core.State().Sweeps["s-1"].Trials) != len(want.Trials) {
		t.Fatalf("it has %+v", r)
	}
	if _, err := core.Begin(b.now, "new", nil); err != nil {
		t.Fatal(err)
	}
	b.core = core
	clear(b.forks)
	b.now = b.now.Add(time.Minute)
	start := r.Start()
	p, err := startProcess(start.Settings, start.Snapshot)
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range start.Told {
		if _, err := p.Handle(q.Event); err != nil {
			t.Fatal(err)
		}
	}
	b.step(control.Uplink{Message: &outbidv1.Uplink{Node: "n1", Boot: "b2", Info: &outbidv1.NodeInfo{Devices: []*outbidv1.Device{{Type: "gpu"}}}}})
	for range 100 {
		if q, open := core.Remote("s-1").Next(); open {
			b.step(answerTo(p, "s-1", q.Number, q.Event))
		}
		for _, l := range core.State().Nodes["n1"].Leases {
			f := l.Fork()
			b.step(control.Uplink{Message: &outbidv1.Uplink{
				Node: "n1", Boot: "b2", FirstSeq: b.next(4), Forks: []*outbidv1.ForkStatus{{Fork: f}},
				Messages: []*outbidv1.UplinkMessage{
					begins(f, 0), report(f, 1, 4),
					{Fork: f, Kind: &outbidv1.UplinkMessage_Reached{Reached: &outbidv1.ForkReached{Step: 4}}},
					{Fork: f, Kind: &outbidv1.UplinkMessage_Ended{Ended: &outbidv1.ForkEnded{Outcome: outbidv1.ForkOutcome_FORK_OUTCOME_ORDERED, Step: 4}}},
				},
			}})
		}
		if core.State().Sweeps["s-1"].Done() {
			break
		}
	}
	s := core.State().Sweeps["s-1"]
	if state.SweepWord(s.State) != "done" || len(s.Trials) != 3 {
		t.Fatalf("the sweep is %s with %d trials: %s", state.SweepWord(s.State), len(s.Trials), s.Reason)
	}
	seen := map[string]bool{}
	for _, trial := range s.Trials {
		if trial.Step != 4 || seen[trial.Config] {
			t.Errorf("trial %d has %s, at step %d", trial.Number, trial.Config, trial.Step)
		}
		seen[trial.Config] = true
	}
}

// next returns the number of the next n messages of a restarted worker.
func (b *bench) next(n uint64) uint64 {
	b.fresh += n
	return b.fresh - n + 1
}

// complete trains the running trial until its target.
func (b *bench) complete() {
	for _, f := range maps.Clone(b.forks) {
		b.say([]*outbidv1.UplinkMessage{
			report(f, 1, 4),
			{Fork: f, Kind: &outbidv1.UplinkMessage_Reached{Reached: &outbidv1.ForkReached{Step: 4}}},
			{Fork: f, Kind: &outbidv1.UplinkMessage_Ended{Ended: &outbidv1.ForkEnded{Outcome: outbidv1.ForkOutcome_FORK_OUTCOME_ORDERED, Step: 4}}},
		})
	}
}
