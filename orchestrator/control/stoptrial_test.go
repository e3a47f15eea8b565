package control_test

import (
	"errors"
	"testing"

	"github.com/outbid-dev/outbid/orchestrator/control"
	"github.com/outbid-dev/outbid/orchestrator/sim"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// stopTrial stops a trial of the bench's sweep as ann.
func (b *bench) stopTrial(trial int32) (err error) {
	b.step(control.StopTrial{Sweep: "s-1", Trial: trial, Reason: "it diverges", Actor: "ann", Done: func(e error) { err = e }})
	return err
}

// A person ends one trial: it is saved, keeps what it reported, frees its device, and the sweep continues with
// another. To end it again changes nothing.
func TestAPersonStopsATrial(t *testing.T) {
	t.Parallel()
	for _, tuner := range []string{"random", "asha", "asha-stop", "hyperband", "median", "performance"} {
		t.Run(tuner, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, 1, sim.Sweep("s", "min", 3, sim.Tuner(tuner, map[string]int64{"max_steps": 9, "eta": 3, "min_steps": 1})))
			s := b.core.State().Sweeps["s-1"]
			first := s.Trials[0]
			f := b.forks[first.Lead().ID]
			b.say([]*outbidv1.UplinkMessage{report(f, 1, 1)})
			if err := b.stopTrial(0); err != nil {
				t.Fatal(err)
			}
			if first.State != outbidv1.TrialState_TRIAL_STATE_STOPPED || first.Reason != "asked for by ann: it diverges" || s.Best != 0 {
				t.Fatalf("it is %s: %s; the best is %d", state.TrialWord(first.State), first.Reason, s.Best)
			}
			if how := first.Lead().Revoking; how != outbidv1.RevokeKind_REVOKE_KIND_PAUSE {
				t.Errorf("its lease is revoked as %s, so it cannot save", how)
			}
			if err := b.stopTrial(0); err != nil || len(first.Reason) == 0 {
				t.Errorf("the second time: %v", err)
			}
			b.say([]*outbidv1.UplinkMessage{{Fork: f, Kind: &outbidv1.UplinkMessage_Ended{Ended: &outbidv1.ForkEnded{
				Outcome: outbidv1.ForkOutcome_FORK_OUTCOME_ORDERED, Step: 1,
			}}}})
			if s.State != outbidv1.SweepState_SWEEP_STATE_RUNNING || len(s.Running) != 1 || s.Running[0] == 0 {
				t.Errorf("the sweep is %s and runs %v", s.State, s.Running)
			}
		})
	}
}

func TestStoppingATrialThatIsNotThere(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1, sim.Sweep("s", "min", 1, sim.Tuner("random", nil)))
	if err := b.stopTrial(7); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("got %v", err)
	}
}
