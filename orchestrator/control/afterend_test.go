package control_test

import (
	"testing"

	"github.com/outbid-dev/outbid/orchestrator/sim"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// A function that fails after its trial has finished does not change the trial, but leaves a note. A program may exit
// with an error when it is stopped.
func TestFailuresAfterTheEndOfATrial(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		function bool
		notes    []string
	}{
		"a function": {true, []string{"failed after it had ended: RuntimeError: no plot"}},
		"a program":  {false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := sim.Sweep("s", "min", 2, sim.Tuner("random", map[string]int64{"max_steps": 1}))
			if tc.function {
				spec.Workload = &outbidv1.SweepSpec_Function{Function: &outbidv1.Function{Name: "train"}}
			}
			b := newBench(t, 1, spec)
			s := b.core.State().Sweeps["s-1"]
			f := b.forks[s.Trials[0].Lead().ID]
			b.say([]*outbidv1.UplinkMessage{
				report(f, 1, 1), {Fork: f, Kind: &outbidv1.UplinkMessage_Reached{Reached: &outbidv1.ForkReached{Step: 1}}},
			})
			b.say([]*outbidv1.UplinkMessage{{Fork: f, Kind: &outbidv1.UplinkMessage_Ended{Ended: &outbidv1.ForkEnded{
				Outcome: outbidv1.ForkOutcome_FORK_OUTCOME_FAILED, Step: 1, Detail: "RuntimeError: no plot",
				Failure: outbidv1.FailureKind_FAILURE_KIND_ERROR,
			}}}})
			if got := s.Trials[0].State; got != outbidv1.TrialState_TRIAL_STATE_COMPLETED {
				t.Errorf("it is %s", got)
			}
			var notes []string
			for _, n := range s.Notes {
				notes = append(notes, n.GetText())
			}
			if len(notes) != len(tc.notes) || len(notes) > 0 && notes[0] != tc.notes[0] {
				t.Errorf("the notes are %q, want %q", notes, tc.notes)
			}
		})
	}
}
