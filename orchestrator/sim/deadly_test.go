package sim_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/control"
	"github.com/outbid-dev/outbid/orchestrator/lab"
	"github.com/outbid-dev/outbid/orchestrator/sim"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Under every policy, a trial that crashes its node costs one node more than its number of allowed restarts. It fails
// with that reason, and all other trials train to the end. Its ledger gives the same decisions again.
func TestATrialThatKillsItsNodeFails(t *testing.T) {
	t.Parallel()
	for i, name := range lab.Policies().Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			set := sim.Setup{Seed: uint64(i), Model: sim.Steps{Time: 2 * time.Second, Deadly: "deadly"}, SnapshotEvery: 7}
			w := newWorld(t, set, name)
			w.AddNode("a", "v100", 3, 1)
			w.AddNode("b", "v100", 2, 1)
			well := sim.Sweep("well", "min", 9, sim.Tuner("random", map[string]int64{"max_steps": 40}))
			deadly := sim.Sweep("deadly", "min", 1, sim.Tuner("random", map[string]int64{"max_steps": 40}))
			deadly.MaxRestarts, well.MaxRestarts = new(int32(3)), new(int32(0))
			for _, s := range []*outbidv1.SweepSpec{well, deadly} {
				if _, err := w.Submit(s); err != nil {
					t.Fatal(err)
				}
			}
			if err := w.Run(time.Hour); err != nil {
				t.Fatal(err)
			}
			end := w.State().Sweeps["deadly-1"].Trials[0]
			if end.State != outbidv1.TrialState_TRIAL_STATE_FAILED || !strings.Contains(end.Reason, "nodes in a row were lost while they ran it") {
				t.Errorf("the trial is %s: %s", end.State, end.Reason)
			}
			if w.Killed() != 4 {
				t.Errorf("it took %d workers down, with 3 restarts allowed", w.Killed())
			}
			for _, trial := range w.State().Sweeps["well-1"].Trials {
				if trial.State != outbidv1.TrialState_TRIAL_STATE_COMPLETED || trial.Restarts != 0 {
					t.Errorf("trial %d of the other sweep is %s after %d restarts: %s", trial.Number, trial.State, trial.Restarts, trial.Reason)
				}
			}
			decidesTheSame(t, w, name)
		})
	}
}

// decidesTheSame replays a world's ledger.
func decidesTheSame(t *testing.T, w *sim.World, name string) {
	t.Helper()
	p, err := lab.Policies().New(name, nil)
	if err != nil {
		t.Fatal(err)
	}
	audit, _, err := control.Replay(context.Background(), settings(), p, w.Ledger())
	if err != nil {
		t.Fatal(err)
	}
	if audit.Differing > 0 {
		t.Errorf("%d of %d decisions came out otherwise: %s", audit.Differing, audit.Decisions, fmt.Sprint(audit.Differences))
	}
}
