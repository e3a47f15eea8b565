package gang_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
	"github.com/outbid-dev/outbid/worker/gang"
	"github.com/outbid-dev/outbid/worker/session"
)

// process is a process whose end the test decides.
type process struct {
	session.Trial
	mu       sync.Mutex
	verdicts []outbidv1.Verdict
	shards   []int32
	killed   chan struct{}
}

func (p *process) Direct(verdict outbidv1.Verdict, _ int64, _ string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.verdicts = append(p.verdicts, verdict)
}

func (p *process) last() outbidv1.Verdict {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.verdicts) == 0 {
		return outbidv1.Verdict_VERDICT_UNSPECIFIED
	}
	return p.verdicts[len(p.verdicts)-1]
}

func (*process) Acked(uint64)           {}
func (*process) SaveDone(int64, string) {}
func (p *process) ShardDone(done *outbidv1.SaveDone) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shards = append(p.shards, done.GetShard().GetRank())
}

func (p *process) Kill() {
	close(p.killed)
	p.Ended(&outbidv1.ForkEnded{
		Outcome: outbidv1.ForkOutcome_FORK_OUTCOME_FAILED, Failure: outbidv1.FailureKind_FAILURE_KIND_SIGNAL, Detail: "killed by signal 9",
	})
}

// trial records the events that reach it.
type trial struct {
	session.Trial
	reports []int64
	saved   []*outbidv1.ProcessSaved
	ended   chan *outbidv1.ForkEnded
}

func (r *trial) Reports(reports []*outbidv1.Report) {
	r.reports = append(r.reports, reports[0].GetStep())
}
func (r *trial) Saved(saved *outbidv1.ProcessSaved) { r.saved = append(r.saved, saved) }
func (r *trial) Ended(e *outbidv1.ForkEnded)        { r.ended <- e }

// start starts a part of a gang of four.
func start(t *testing.T, first, size int, change func(c *gang.Config)) (*gang.Group, []*process, *trial) {
	t.Helper()
	processes, events := make([]*process, size), &trial{ended: make(chan *outbidv1.ForkEnded, 2)}
	c := gang.Config{
		Gang: &outbidv1.Gang{FirstRank: int32(first), Ranks: 4, PerDevice: true}, Size: size, Node: "a", Trial: events,
		StopGrace: time.Hour, EndGrace: time.Hour, PeerGrace: time.Hour,
		Launch: func(_ context.Context, local int, own session.Trial) (gang.Process, error) {
			processes[local] = &process{Trial: own, killed: make(chan struct{})}
			return processes[local], nil
		},
	}
	if change != nil {
		change(&c)
	}
	g, err := gang.Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return g, processes, events
}

func failed(detail string, peer bool) *outbidv1.ForkEnded {
	return &outbidv1.ForkEnded{Outcome: outbidv1.ForkOutcome_FORK_OUTCOME_FAILED, Detail: detail, PeerLost: peer}
}

func finished(step int64) *outbidv1.ForkEnded {
	return &outbidv1.ForkEnded{Outcome: outbidv1.ForkOutcome_FORK_OUTCOME_FINISHED, Step: step}
}

func (r *trial) mustEnd(t *testing.T, outcome outbidv1.ForkOutcome, detail string) {
	t.Helper()
	select {
	case e := <-r.ended:
		if e.GetOutcome() != outcome || e.GetDetail() != detail || e.GetPeerLost() {
			t.Errorf("it ended with %v", e)
		}
	case <-time.After(time.Minute):
		t.Fatal("it did not end")
	}
}

func (r *trial) mustNotHaveEnded(t *testing.T) {
	t.Helper()
	select {
	case e := <-r.ended:
		t.Fatalf("it ended with %v", e)
	default:
	}
}

func TestOnlyRankZeroReports(t *testing.T) {
	t.Parallel()
	_, p, r := start(t, 0, 2, nil)
	p[1].Reports([]*outbidv1.Report{{Step: 7}})
	p[0].Reports([]*outbidv1.Report{{Step: 1}})
	p[0].LastReports([]*outbidv1.Report{{Step: 2}})
	_, q, s := start(t, 2, 2, nil)
	q[0].Reports([]*outbidv1.Report{{Step: 7}})
	if len(r.reports) != 2 || r.reports[0] != 1 || r.reports[1] != 2 || len(s.reports) != 0 {
		t.Errorf("the trials got the reports %v and %v", r.reports, s.reports)
	}
}

func TestTheReasonIsThatOfTheFirstFailureOfItsOwn(t *testing.T) {
	t.Parallel()
	_, p, r := start(t, 0, 3, nil)
	p[0].Ended(failed("it lost contact with rank 2", true))
	p[2].Ended(failed("killed by signal 9", false))
	if p[1].last() != outbidv1.Verdict_VERDICT_STOP {
		t.Error("the other process was not stopped")
	}
	r.mustNotHaveEnded(t)
	p[1].Ended(failed("broken", false))
	r.mustEnd(t, outbidv1.ForkOutcome_FORK_OUTCOME_FAILED, "rank 2 on node a: killed by signal 9")
}

func TestALossElsewhereWaitsForTheOrder(t *testing.T) {
	t.Parallel()
	g, p, r := start(t, 2, 2, nil)
	p[0].Ended(failed("it lost contact with rank 0", true))
	p[1].Ended(failed("it lost contact with rank 0", true))
	r.mustNotHaveEnded(t)
	g.Direct(outbidv1.Verdict_VERDICT_STOP, 0, "")
	r.mustEnd(t, outbidv1.ForkOutcome_FORK_OUTCOME_ORDERED, "")
	g.Direct(outbidv1.Verdict_VERDICT_PAUSE, 0, "")
	r.mustNotHaveEnded(t)
}

func TestALossElsewhereFailsWithoutAnOrder(t *testing.T) {
	t.Parallel()
	_, p, r := start(t, 2, 1, func(c *gang.Config) { c.PeerGrace = time.Millisecond })
	p[0].Ended(failed("it lost contact with rank 0", true))
	r.mustEnd(t, outbidv1.ForkOutcome_FORK_OUTCOME_FAILED, "rank 2 on node a: it lost contact with rank 0")
}

func TestAKillEndsAHeldGroup(t *testing.T) {
	t.Parallel()
	g, p, r := start(t, 2, 1, nil)
	p[0].Ended(failed("it lost contact with rank 0", true))
	g.Kill()
	r.mustEnd(t, outbidv1.ForkOutcome_FORK_OUTCOME_FAILED, "rank 2 on node a: it lost contact with rank 0")
}

func TestTheTrialIsDoneWhenRankZeroIs(t *testing.T) {
	t.Parallel()
	_, p, r := start(t, 0, 2, func(c *gang.Config) { c.EndGrace = time.Millisecond })
	p[0].Ended(finished(9))
	<-p[1].killed
	select {
	case e := <-r.ended:
		if e.GetOutcome() != outbidv1.ForkOutcome_FORK_OUTCOME_FINISHED || e.GetStep() != 9 {
			t.Errorf("it ended with %v", e)
		}
	case <-time.After(time.Minute):
		t.Fatal("it did not end")
	}
}

func TestAProcessThatDoesNotStopIsKilled(t *testing.T) {
	t.Parallel()
	_, p, r := start(t, 0, 2, func(c *gang.Config) { c.StopGrace = time.Millisecond })
	p[1].Ended(failed("broken", false))
	<-p[0].killed
	r.mustEnd(t, outbidv1.ForkOutcome_FORK_OUTCOME_FAILED, "rank 1 on node a: broken")
}

func TestAGangThatCannotStartNamesTheRank(t *testing.T) {
	t.Parallel()
	var first *process
	there := make(chan struct{})
	events := &trial{ended: make(chan *outbidv1.ForkEnded, 1)}
	_, err := gang.Start(t.Context(), gang.Config{
		Gang: &outbidv1.Gang{FirstRank: 2, Ranks: 4, PerDevice: true}, Size: 2, Node: "a", Trial: events,
		Launch: func(ctx context.Context, local int, own session.Trial) (gang.Process, error) {
			if local == 0 {
				first = &process{Trial: own, killed: make(chan struct{})}
				close(there)
				return first, nil
			}
			<-there
			return nil, &session.StartError{Kind: outbidv1.FailureKind_FAILURE_KIND_START, Detail: "no Python"}
		},
	})
	if e := (*session.StartError)(nil); !errors.As(err, &e) || e.Detail != "rank 3: no Python" {
		t.Errorf("the error is %v", err)
	}
	<-first.killed
	events.mustNotHaveEnded(t)
}

func TestEnvironment(t *testing.T) {
	t.Parallel()
	g := &outbidv1.Gang{FirstRank: 2, Ranks: 4, Place: 1, Places: 2, Address: "here", Port: 29501, PerDevice: true, Restarts: 3}
	got := gang.Environment(g, &outbidv1.ForkRef{Sweep: "s-1", Trial: 7}, 1, 2)
	want := []string{
		"RANK=3", "WORLD_SIZE=4", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2", "GROUP_RANK=1", "GROUP_WORLD_SIZE=2", "MASTER_ADDR=here",
		"MASTER_PORT=29501", "TORCHELASTIC_RESTART_COUNT=3", "TORCHELASTIC_RUN_ID=s-1-7",
	}
	if len(got) != len(want) {
		t.Fatalf("the environment is %v", got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("variable %d is %s, want %s", i, got[i], want[i])
		}
	}
}

func TestAShardIsAnsweredToItsRank(t *testing.T) {
	t.Parallel()
	g, p, r := start(t, 2, 2, nil)
	p[1].Saved(&outbidv1.ProcessSaved{Step: 7})
	p[1].Saved(&outbidv1.ProcessSaved{Step: 8, Shard: &outbidv1.CheckpointShard{Rank: 1}}) // a process does not choose its rank
	if len(r.saved) != 1 || r.saved[0].GetShard().GetRank() != 3 {
		t.Fatalf("the trial got %v", r.saved)
	}
	for rank := range int32(5) {
		g.ShardDone(&outbidv1.SaveDone{Shard: &outbidv1.CheckpointShard{Rank: rank}})
	}
	if len(p[0].shards) != 1 || p[0].shards[0] != 2 || len(p[1].shards) != 1 || p[1].shards[0] != 3 {
		t.Errorf("the ranks got %v and %v", p[0].shards, p[1].shards)
	}
}
