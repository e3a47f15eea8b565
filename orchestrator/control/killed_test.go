package control_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/control"
	"github.com/outbid-dev/outbid/orchestrator/sim"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// A restarted worker that reports that its predecessor was killed from outside costs its trials nothing. Without that
// report, or if it names another worker, the trials become suspects.
func TestAWorkerThatWasKilledIsHeldAgainstNoTrial(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		says func(before string) string
		held bool
	}{
		"killed":         {says: func(before string) string { return before }},
		"not known":      {says: func(string) string { return "" }, held: true},
		"another's boot": {says: func(string) string { return "b" }, held: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := sim.Sweep("s", "min", 1, sim.Tuner("random", map[string]int64{"max_steps": 9}))
			spec.MaxRestarts = new(int32(3))
			b := newBench(t, 1, spec)
			for n := range 3 {
				b.now = b.now.Add(10 * time.Second) // the previous worker is silent for that long
				boot := fmt.Sprint("b", n+1)
				b.step(control.Uplink{Message: &outbidv1.Uplink{Node: "n1", Boot: fmt.Sprint("b", n+2), Info: &outbidv1.NodeInfo{
					Name: "n1", Boot: fmt.Sprint("b", n+2), Devices: []*outbidv1.Device{{Type: "cpu"}}, Killed: c.says(boot),
				}}})
				b.step(control.Tick{})
			}
			trial := b.core.State().Sweeps["s-1"].Trials[0]
			if held := trial.NodeLosses == 3 && trial.Suspected; held != c.held || !c.held && trial.NodeLosses > 0 {
				t.Errorf("after 3 kills %d nodes were lost under it, suspected is %t", trial.NodeLosses, trial.Suspected)
			}
			if len(trial.Leases) != 1 {
				t.Errorf("it does not go on: %v", trial.State)
			}
		})
	}
}
