package control_test

import (
	"testing"

	"github.com/outbid-dev/outbid/orchestrator/sim"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// A trial that its own code prunes is stopped, whether it has reported or not. A trial that ends without a report
// fails.
func TestATrialThatItsCodePrunes(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		pruned, reports bool
		want            outbidv1.TrialState
		reason          string
	}{
		"after a report":           {true, true, outbidv1.TrialState_TRIAL_STATE_STOPPED, "its code pruned it at step 1"},
		"before any":               {true, false, outbidv1.TrialState_TRIAL_STATE_STOPPED, "its code pruned it at step 0"},
		"not pruned":               {false, true, outbidv1.TrialState_TRIAL_STATE_COMPLETED, "its code ended at step 1"},
		"not pruned and no report": {false, false, outbidv1.TrialState_TRIAL_STATE_FAILED, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, 1, sim.Sweep("s", "min", 1, sim.Tuner("random", nil)))
			trial := b.core.State().Sweeps["s-1"].Trials[0]
			f := b.forks[trial.Lead().ID]
			if tc.reports {
				b.say([]*outbidv1.UplinkMessage{report(f, 1, 1)})
			}
			b.say([]*outbidv1.UplinkMessage{{Fork: f, Kind: &outbidv1.UplinkMessage_Ended{Ended: &outbidv1.ForkEnded{
				Outcome: outbidv1.ForkOutcome_FORK_OUTCOME_FINISHED, Pruned: tc.pruned,
			}}}})
			if trial.State != tc.want || tc.reason != "" && trial.Reason != tc.reason {
				t.Errorf("it is %s: %s", state.TrialWord(trial.State), trial.Reason)
			}
		})
	}
}
