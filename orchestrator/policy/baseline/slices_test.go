package baseline_test

import (
	"testing"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/baseline"
)

func optionsOf(t *testing.T, pairs ...string) *policy.Options {
	t.Helper()
	o, err := policy.ParseOptions(pairs)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// B is submitted when A has had 30 s: it gets the device at the end of the lease, and keeps it until it has had as much
// as A.
func TestLASServesLeastService(t *testing.T) {
	t.Parallel()
	s, p := one(1), baseline.NewLAS(optionsOf(t, "lease=10s"))
	s.Job(s.App("A", "x"), 1, 1, 60)
	s.Run(t, p, 30*time.Second)
	s.Job(s.App("B", "x"), 1, 1, 60)
	s.Run(t, p, time.Hour)
	// B has 30 to 60; then they take turns, A first: 60 to 70, 80 to 90, 100 to 110.
	if got := ends(s); got != "A 110 B 120 " {
		t.Errorf("ended at %q", got)
	}
}

// A sweep of two trials and one of a single trial get equal service; by trial the first sweep would get two thirds.
func TestLASCountsTheServiceOfApps(t *testing.T) {
	t.Parallel()
	for unit, want := range map[string]time.Duration{"app": 200 * time.Second, "job": 300 * time.Second} {
		s, p := one(1), baseline.NewLAS(optionsOf(t, "lease=1s", "unit="+unit))
		a := s.App("A", "x")
		s.Job(a, 1, 1, 100)
		s.Job(a, 1, 1, 100)
		s.Job(s.App("B", "x"), 1, 1, 100)
		s.Run(t, p, time.Hour)
		if got := s.Ended[policy.JobName{App: "B"}]; (got - want).Abs() > 3*time.Second {
			t.Errorf("by %s the single job ended after %s, want %s", unit, got, want)
		}
	}
}
