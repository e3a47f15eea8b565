package control_test

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/outbid-dev/outbid/orchestrator/control"
	"github.com/outbid-dev/outbid/orchestrator/sim"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// byClients returns a bench whose sweep has two trials of two steps, which clients train.
func byClients(t *testing.T, timeout string) *bench {
	t.Helper()
	spec := sim.Sweep("s", "min", 2, sim.Tuner("random", map[string]int64{"max_steps": 2}))
	spec.Workload, spec.Resources = &outbidv1.SweepSpec_External{External: &outbidv1.External{Timeout: timeout}}, nil
	return newBench(t, 1, spec)
}

func (b *bench) ask(client string) *outbidv1.AskTrialResponse {
	var answer *outbidv1.AskTrialResponse
	b.step(control.Ask{Sweep: "s-1", Client: client, Done: func(r *outbidv1.AskTrialResponse, err error) {
		if answer = r; err != nil {
			b.tb.Fatal(err)
		}
	}})
	if answer == nil {
		b.tb.Fatal("no answer")
	}
	return answer
}

func (b *bench) tell(asked *outbidv1.AskTrialResponse, step int64) *outbidv1.TellTrialResponse {
	var answer *outbidv1.TellTrialResponse
	b.step(control.Tell{Request: &outbidv1.TellTrialRequest{
		Sweep: "s-1", Trial: asked.GetTrial().GetNumber(), LeaseId: asked.GetLeaseId(),
		Reports: []*outbidv1.Report{{Step: step, Time: timestamppb.New(b.now), Metrics: map[string]float64{"loss": .5}}},
	}, Done: func(r *outbidv1.TellTrialResponse, err error) {
		if answer = r; err != nil {
			b.tb.Fatal(err)
		}
	}})
	return answer
}

func (b *bench) command(c outbidv1.SweepCommand) {
	b.step(control.Command{Sweep: "s-1", Command: c, Actor: "ann", Done: func(err error) {
		if err != nil {
			b.tb.Fatal(err)
		}
	}})
}

// A client that asks gets a trial if there is one. It learns that the sweep is exhausted as soon as that is known,
// and not before.
func TestClientsLearnWhetherThereAreMoreTrials(t *testing.T) {
	t.Parallel()
	check := func(when string, got *outbidv1.AskTrialResponse, trial, exhausted bool) {
		t.Helper()
		if (got.GetTrial() != nil) != trial || got.GetExhausted() != exhausted {
			t.Errorf("%s: %v", when, got)
		}
	}
	b := byClients(t, "")
	first, second := b.ask("a"), b.ask("b")
	check("the first", first, true, false)
	check("the second", second, true, false)
	if first.GetTrial().GetNumber() == second.GetTrial().GetNumber() {
		t.Error("two got the same trial")
	}
	check("while both train", b.ask("c"), false, false)
	if got := b.tell(first, 1); !got.GetGoOn() {
		t.Errorf("after one step of two: %v", got)
	}
	if got := b.tell(first, 2); got.GetGoOn() {
		t.Errorf("after the last step: %v", got)
	}
	check("while one trains", b.ask("c"), false, false)
	b.tell(second, 2)
	check("after the last", b.ask("c"), false, true)

	b = byClients(t, "")
	b.command(outbidv1.SweepCommand_SWEEP_COMMAND_PAUSE)
	check("while it is paused", b.ask("a"), false, false)
	b.command(outbidv1.SweepCommand_SWEEP_COMMAND_RESUME)
	check("once it goes on", b.ask("a"), true, false)
	b.command(outbidv1.SweepCommand_SWEEP_COMMAND_STOP)
	check("once it is stopped", b.ask("b"), false, true)
}

// A client that does not report for the spec's timeout loses its trial to the next client that asks. Every report
// resets the timeout.
func TestASilentClientLosesItsTrial(t *testing.T) {
	t.Parallel()
	b := byClients(t, "1h")
	silent, talks := b.ask("a"), b.ask("b")
	tr := b.core.State().Sweeps["s-1"].Trials
	holds := func(when string, a, c bool) {
		t.Helper()
		b.step(control.Tick{})
		if tr[silent.GetTrial().GetNumber()].Lead() != nil != a || tr[talks.GetTrial().GetNumber()].Lead() != nil != c {
			t.Errorf("%s: leases %v and %v", when, tr[0].Lead(), tr[1].Lead())
		}
	}
	b.now = b.now.Add(59 * time.Minute)
	b.tell(talks, 1)
	holds("a minute before", true, true)
	b.now = b.now.Add(61 * time.Second)
	holds("after an hour", false, true)
	if again := b.ask("c"); again.GetTrial().GetNumber() != silent.GetTrial().GetNumber() {
		t.Errorf("the next who asks gets %v", again)
	}
	if got := b.tell(silent, 1); got.GetGoOn() {
		t.Errorf("who lost the trial is to go on: %v", got)
	}
}

// A sweep without any report fails when all of its trials have failed, or five have. After a report, it continues.
func TestASweepWithoutHopeIsGivenUp(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		trials   int32
		reports  bool
		fails    int
		givenUp  bool
		sentence string
	}{
		{2, false, 1, false, "one of two failed"},
		{2, false, 2, true, "both failed"},
		{8, false, 4, false, "four of eight failed"},
		{8, false, 5, true, "five of eight failed"},
		{8, true, 5, false, "five of eight failed, and one had reported"},
	} {
		spec := sim.Sweep("s", "min", tc.trials, sim.Tuner("random", map[string]int64{"max_steps": 9}))
		spec.MaxRestarts = new(int32(0))
		b := newBench(t, 8, spec)
		s := b.core.State().Sweeps["s-1"]
		var forks []*outbidv1.ForkRef
		for _, n := range s.Running {
			forks = append(forks, &outbidv1.ForkRef{Sweep: s.ID, Trial: n, LeaseId: s.Trials[n].Lead().ID})
		}
		if len(forks) != int(tc.trials) {
			t.Fatalf("%d of %d run", len(forks), tc.trials)
		}
		if tc.reports {
			b.say([]*outbidv1.UplinkMessage{report(forks[0], 1, 1)})
		}
		for _, f := range forks[:tc.fails] {
			b.say([]*outbidv1.UplinkMessage{{Fork: f, Kind: &outbidv1.UplinkMessage_Ended{Ended: &outbidv1.ForkEnded{
				Outcome: outbidv1.ForkOutcome_FORK_OUTCOME_FAILED, Detail: fmt.Sprint("failure ", f.GetTrial()),
			}}}})
			delete(b.forks, f.GetLeaseId())
		}
		if got := state.SweepWord(s.State); (got != "running") != tc.givenUp {
			t.Errorf("%s: it is %s (%s)", tc.sentence, got, s.Reason)
		}
	}
}

// A process that fails twice in the same way at the same step would fail a third time. A process that hung may have
// waited for something outside.
func TestFailingTwiceInTheSameWay(t *testing.T) {
	t.Parallel()
	for kind, again := range map[outbidv1.FailureKind]bool{
		outbidv1.FailureKind_FAILURE_KIND_ERROR: false, outbidv1.FailureKind_FAILURE_KIND_SIGNAL: false,
		outbidv1.FailureKind_FAILURE_KIND_HANG: true,
	} {
		b := newBench(t, 1, sim.Sweep("s", "min", 1, sim.Tuner("random", map[string]int64{"max_steps": 9})))
		tr := b.core.State().Sweeps["s-1"].Trials[0]
		for range 2 {
			f := &outbidv1.ForkRef{Sweep: "s-1", LeaseId: tr.Lead().ID}
			b.say([]*outbidv1.UplinkMessage{report(f, 1, 1), {Fork: f, Kind: &outbidv1.UplinkMessage_Ended{Ended: &outbidv1.ForkEnded{
				Outcome: outbidv1.ForkOutcome_FORK_OUTCOME_FAILED, Failure: kind, Detail: "as before", Step: 1,
			}}}})
			delete(b.forks, f.GetLeaseId())
		}
		if tr.Done() == again {
			t.Errorf("after two failures of kind %s it is %s (%s)", kind, state.TrialWord(tr.State), tr.Reason)
		}
	}
}
