package control_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/outbid-dev/outbid/orchestrator/control"
	"github.com/outbid-dev/outbid/orchestrator/policy/baseline"
	"github.com/outbid-dev/outbid/orchestrator/sim"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// retryTrial retries any trial that failed.
func (l *life) retryTrial() {
	var failed []control.RetryTrial
	for _, id := range l.core.State().SweepIDs {
		for _, t := range l.core.State().Sweeps[id].Trials {
			if t.State == outbidv1.TrialState_TRIAL_STATE_FAILED {
				failed = append(failed, control.RetryTrial{Sweep: id, Trial: t.Number, Actor: "ann", Done: func(error) {}})
			}
		}
	}
	if len(failed) > 0 {
		l.step(pick(l, failed))
	}
}

// retryTrial retries a trial of the bench's sweep as ann.
func (b *bench) retryTrial(trial int32) (err error) {
	b.step(control.RetryTrial{Sweep: "s-1", Trial: trial, Reason: "the disk is mended", Actor: "ann", Done: func(e error) { err = e }})
	return err
}

// brittle returns a sweep of a tuner whose trials fail for good when their process fails.
func brittle(tuner string, trials int32) *outbidv1.SweepSpec {
	spec := sim.Sweep("s", "min", trials, sim.Tuner(tuner, map[string]int64{
		"max_steps": 9, "eta": 3, "min_steps": 1, "trials": int64(trials),
	}))
	switch tuner {
	case "bayes":
		spec.Tuner.Kind = &outbidv1.Tuner_Bayes{Bayes: &outbidv1.BayesianSearch{MaxSteps: 9}}
	case "freeze-thaw":
		spec.Tuner.Kind = &outbidv1.Tuner_FreezeThaw{FreezeThaw: &outbidv1.FreezeThaw{MaxSteps: 9}}
	case "asha-bayes":
		spec.Tuner.Kind = &outbidv1.Tuner_Asha{Asha: &outbidv1.Asha{MaxSteps: 9, MinSteps: 1, Eta: 3, Form: "promote", Sampler: "bayes"}}
	}
	spec.MaxRestarts = new(int32(0))
	return spec
}

// lead returns the fork of a trial.
func (b *bench) lead(trial int32) *outbidv1.ForkRef {
	return b.core.State().Sweeps["s-1"].Trials[trial].Lead().Fork()
}

// fail makes the process of a trial fail.
func (b *bench) fail(trial int32) {
	f := b.lead(trial)
	delete(b.forks, f.GetLeaseId())
	b.say([]*outbidv1.UplinkMessage{{Fork: f, Kind: &outbidv1.UplinkMessage_Ended{Ended: &outbidv1.ForkEnded{
		Outcome: outbidv1.ForkOutcome_FORK_OUTCOME_FAILED, Failure: outbidv1.FailureKind_FAILURE_KIND_ERROR, Detail: "the disk is full",
	}}}})
}

// finish makes a trial report again and reach its target, or end if it has none. It reports whether the tuner was
// notified.
func (b *bench) finish(trial int32) (told bool) {
	f, t := b.lead(trial), b.core.State().Sweeps["s-1"].Trials[trial]
	delete(b.forks, f.GetLeaseId())
	step := max(t.UntilStep, t.Step+1)
	b.say([]*outbidv1.UplinkMessage{report(f, t.Lead().LastReportSeq+1, step), {
		Fork: f, Kind: &outbidv1.UplinkMessage_Reached{Reached: &outbidv1.ForkReached{Step: step}},
	}})
	told = b.told(trial)
	if t.Lead() != nil {
		b.say([]*outbidv1.UplinkMessage{{Fork: f, Kind: &outbidv1.UplinkMessage_Ended{Ended: &outbidv1.ForkEnded{
			Outcome: outbidv1.ForkOutcome_FORK_OUTCOME_FINISHED, Step: step,
		}}}})
	}
	return told || b.told(trial)
}

// told reports whether the tuner got an event of a trial in the last step.
func (b *bench) told(trial int32) bool {
	return slices.ContainsFunc(b.out.Changes, func(c state.Change) bool { return c.News && c.Trial != nil && c.Trial.Number == trial })
}

// A person retries a failed trial: it continues from its newest checkpoint without the failures that it had, and counts
// once it reaches its target. Its tuner is not notified, and a restored core agrees.
func TestAPersonRetriesATrial(t *testing.T) {
	t.Parallel()
	for _, tuner := range []string{"random", "asha", "asha-stop", "hyperband", "median", "performance", "freeze-thaw", "pbt", "asha-bayes", "bayes"} {
		t.Run(tuner, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, 2, brittle(tuner, 4))
			s := b.core.State().Sweeps["s-1"]
			first, f := s.Trials[0], b.lead(0)
			target := first.UntilStep
			saved := saves(f, 0)
			key := saved.GetSaved().GetKey()
			b.say([]*outbidv1.UplinkMessage{saved})
			b.fail(0)
			if first.State != outbidv1.TrialState_TRIAL_STATE_FAILED || first.Newest().GetKey() != key || !b.told(0) {
				t.Fatalf("it is %s and has %v", state.TrialWord(first.State), first.Checkpoints)
			}
			if err := b.retryTrial(0); err != nil {
				t.Fatal(err)
			}
			if err := b.retryTrial(0); err != nil {
				t.Errorf("the second time: %v", err)
			}
			if first.Retries != 1 || first.Restarts != 0 || first.UntilStep != target || first.From().GetKey() != key ||
				first.Reason != "retried, asked for by ann: the disk is mended" && first.Lead() == nil {
				t.Fatalf("it is %s: %+v", first.Reason, first)
			}
			for first.Lead() == nil { // another trial may have its device
				b.finish(s.Running[0])
			}
			if b.finish(0) {
				t.Error("its tuner was told")
			}
			if first.State != outbidv1.TrialState_TRIAL_STATE_COMPLETED || first.Step != max(target, 1) {
				t.Errorf("it is %s at step %d: %s", state.TrialWord(first.State), first.Step, first.Reason)
			}
			restored, err := control.Restore(context.Background(), settings(), baseline.FIFO{}, b.ledger, nil)
			if err != nil {
				t.Fatal(err)
			}
			if got := restored.State().Sweeps["s-1"].Trials[0]; got.Retries != 1 || got.State != first.State || got.Best != first.Best {
				t.Errorf("after a restart it is %s, retried %d times", state.TrialWord(got.State), got.Retries)
			}
		})
	}
}

// A sweep that ended because its trials failed continues with a retried one, and counts only failures since then.
func TestARetryContinuesAFailedSweep(t *testing.T) {
	t.Parallel()
	for _, trials := range []int32{1, 9} {
		t.Run(fmt.Sprint(trials), func(t *testing.T) {
			t.Parallel()
			b := newBench(t, 1, brittle("random", trials))
			s := b.core.State().Sweeps["s-1"]
			for n := range min(trials, 5) {
				b.fail(n)
			}
			if s.State != outbidv1.SweepState_SWEEP_STATE_FAILED {
				t.Fatalf("it is %s: %s", state.SweepWord(s.State), s.Reason)
			}
			if err := b.retryTrial(0); err != nil {
				t.Fatal(err)
			}
			if s.State != outbidv1.SweepState_SWEEP_STATE_RUNNING || len(s.Running) != 1 || s.Running[0] != 0 {
				t.Fatalf("it is %s and runs %v", state.SweepWord(s.State), s.Running)
			}
			b.finish(0)
			if done := s.State == outbidv1.SweepState_SWEEP_STATE_DONE; done != (trials == 1) || s.Best != 0 {
				t.Errorf("it is %s, and its best trial is %d", state.SweepWord(s.State), s.Best)
			}
		})
	}
}

func TestRetriesThatAreRefused(t *testing.T) {
	t.Parallel()
	stop := outbidv1.SweepCommand_SWEEP_COMMAND_STOP
	for name, c := range map[string]struct {
		trial  int32
		before func(b *bench)
		kind   error
		says   string
	}{
		"no such trial": {7, func(*bench) {}, state.ErrNotFound, "s-1/7"},
		"it runs":       {0, func(*bench) {}, state.ErrConflict, "trial: must be one that has failed, but trial 0 of sweep s-1 is running"},
		"stopped sweep": {0, func(b *bench) { b.command(stop); b.fail(0); b.step() }, state.ErrConflict, "resume it first"},
		"its time is over": {0, func(b *bench) {
			b.fail(0)
			b.now = b.now.Add(2 * b.core.State().Sweeps["s-1"].Terms.WallTime)
			b.step(control.Tick{})
		}, state.ErrConflict, "extend it with a higher limit first"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := brittle("random", 1)
			spec.Limits.WallTime = "1h"
			b := newBench(t, 1, spec)
			c.before(b)
			if err := b.retryTrial(c.trial); !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// A tuner in another process is asked nothing about a trial that a person retried.
func TestARemoteTunerIsNotAskedAboutARetriedTrial(t *testing.T) {
	t.Parallel()
	b := newRemoteBench(t, 1, "random", 2)
	b.step(b.answer())
	b.sweep().Spec.MaxRestarts = new(int32(0))
	b.fail(0)
	answerAll := func() {
		for r := b.core.Remote("s-1"); r != nil && len(r.Open()) > 0; r = b.core.Remote("s-1") {
			b.step(b.answer())
		}
	}
	answerAll()
	if err := b.retryTrial(0); err != nil {
		t.Fatal(err)
	}
	for s := b.sweep(); !s.Done(); answerAll() {
		if n := s.Running[0]; b.finish(n) && n == 0 {
			t.Error("it was told about the retried trial")
		}
	}
	if s := b.sweep(); s.State != outbidv1.SweepState_SWEEP_STATE_DONE || s.Trials[0].State != outbidv1.TrialState_TRIAL_STATE_COMPLETED {
		t.Errorf("the sweep is %s, and the trial %s", state.SweepWord(s.State), state.TrialWord(s.Trials[0].State))
	}
}
