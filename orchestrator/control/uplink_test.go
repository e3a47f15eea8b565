package control_test

import (
	"testing"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/control"
	"github.com/outbid-dev/outbid/orchestrator/sim"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// An uplink that has no room for the list of forks does not affect them: their bodies are not sent again, and none is
// missing.
func TestForksThatAnUplinkLeavesOutAreAsBefore(t *testing.T) {
	t.Parallel()
	b := newBench(t, 4, sim.Sweep("s", "min", 4, sim.Tuner("random", map[string]int64{"max_steps": 9})))
	var began []*outbidv1.UplinkMessage
	for _, f := range b.forks {
		began = append(began, &outbidv1.UplinkMessage{Fork: f, Kind: &outbidv1.UplinkMessage_Began{Began: &outbidv1.ForkBegan{}}})
	}
	b.say(began)
	for step := range int64(8) {
		var reports []*outbidv1.UplinkMessage
		for _, f := range b.forks {
			reports = append(reports, report(f, uint64(step)+1, step+1))
		}
		b.now = b.now.Add(10 * time.Second) // together longer than a lease
		up := &outbidv1.Uplink{Node: "n1", Boot: "b1", FirstSeq: b.seq, Messages: reports, ForksLeftOut: true}
		b.seq += uint64(len(reports))
		b.step(control.Uplink{Message: up})
		for _, o := range b.out.Orders {
			for _, a := range o.GetAssignments() {
				if a.GetBody() != nil {
					t.Fatalf("the body of trial %d is sent again", a.GetFork().GetTrial())
				}
			}
		}
	}
	for _, trial := range b.core.State().Sweeps["s-1"].Trials {
		if trial.Step != 8 || len(trial.Leases) != 1 {
			t.Errorf("trial %d is at step %d with %d leases", trial.Number, trial.Step, len(trial.Leases))
		}
	}
}
