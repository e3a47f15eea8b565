package sim_test

import (
	"testing"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/control"
	"github.com/outbid-dev/outbid/orchestrator/sim"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// An extension reports which trials will train again because their checkpoints were deleted, and does what it reported.
func TestAnExtensionSaysWhatIsTrainedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sim.Setup{Model: sim.Steps{Time: time.Second}}, "drf")
	w.AddNode("a", "gpu", 2, 1)
	id, err := w.Submit(sim.Sweep("s", "min", 4, sim.Tuner("random", map[string]int64{"max_steps": 5})))
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Run(time.Hour); err != nil {
		t.Fatal(err)
	}
	extend := func(preview bool) (again []*outbidv1.TrainedAgain) {
		w.Do(control.Extend{
			Request: &outbidv1.ExtendSweepRequest{Sweep: id, MaxSteps: new(int64(9)), Preview: preview}, Actor: "sim",
			Done: func(a []*outbidv1.TrainedAgain, err error) {
				if again = a; err != nil {
					t.Error(err)
				}
			},
		})
		return again
	}
	said := extend(true)
	if len(said) != 3 || said[0].GetFromStep() != 0 || said[0].GetStep() != 5 {
		t.Errorf("it says %v: one of four keeps its checkpoint", said)
	}
	if !w.State().Sweeps[id].Done() {
		t.Error("the preview extended it")
	}
	before := w.Trained()
	if again := extend(false); len(again) != len(said) {
		t.Errorf("extended, it says %v", again)
	}
	if err := w.Run(time.Hour); err != nil {
		t.Fatal(err)
	}
	if did := w.Trained() - before; did != 4*4+3*5 {
		t.Errorf("it trained %d steps more", did)
	}
	// Steps that were trained twice were reported twice, and the first reports are superseded.
	for _, trial := range w.State().Sweeps[id].Trials {
		twice := false
		for _, s := range said {
			twice = twice || s.GetTrial() == trial.Number
		}
		first := &outbidv1.Report{Step: 3, LeaseId: 1 + uint64(trial.Number)}
		if trial.Superseded(first) != twice || trial.Superseded(trial.Last) {
			t.Errorf("trial %d: superseded %t, its last report %t", trial.Number, trial.Superseded(first), trial.Superseded(trial.Last))
		}
	}
}
