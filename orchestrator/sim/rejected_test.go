package sim_test

import (
	"testing"

	"github.com/outbid-dev/outbid/orchestrator/trace"
)

// A job that its policy rejects does not count as ended, and its end is worth nothing.
func TestARejectedJobIsWorthNothing(t *testing.T) {
	t.Parallel()
	job := func(id string, seconds float64, u trace.Utility) trace.Job {
		return trace.Job{ID: id, MinGPUs: 1, MaxGPUs: 1, Duration: seconds, Utility: &u}
	}
	made := &trace.Trace{Jobs: []trace.Job{
		job("good", 600, trace.Utility{Priority: 10, Decay: 1e-3, Target: 7200}),
		job("hopeless", 3000, trace.Utility{Priority: 10, Decay: 1, Target: 60}),
	}}
	_, got, _ := underPolicy(t, "oasis", "v100:2/2", made, "refused=reject", "conserve=false", "slots=10")
	if got.Jobs != 1 || got.Failed != 1 || got.UtilityTotal < 9 || got.UtilityTotal > 10 || got.LateMean > -6000 {
		t.Errorf("%d jobs ended and %d were dropped, worth %v, %v s after their targets", got.Jobs, got.Failed, got.UtilityTotal, got.LateMean)
	}
}
