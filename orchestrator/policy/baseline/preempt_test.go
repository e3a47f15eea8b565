package baseline_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/baseline"
	"github.com/outbid-dev/outbid/orchestrator/policy/stagetest"
)

// ends lists when each sweep's only trial ended, in whole seconds.
func ends(s *stagetest.Stage) string {
	text := ""
	for _, a := range s.Apps {
		text += fmt.Sprintf("%s %.0f ", a.ID, s.Ended[policy.JobName{App: a.ID}].Seconds())
	}
	return text
}

// Three jobs on two GPUs: A on 2 for 6 s, B on 2 for 2 s, C on 1 for 8 s.
func TestOrderOfTime(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		policy policy.Policy
		want   string
	}{
		{baseline.FIFO{}, "A 6 B 8 C 16 "},
		{baseline.SRTF{}, "A 8 B 2 C 16 "}, // times left 6, 2, 8
	} {
		s := one(2)
		s.Job(s.App("A", "x"), 2, 2, 12)
		s.Job(s.App("B", "x"), 2, 2, 4)
		s.Job(s.App("C", "x"), 1, 1, 8)
		s.Run(t, tc.policy, time.Hour)
		if got := ends(s); got != tc.want {
			t.Errorf("%s: ended at %q, want %q", tc.policy.Name(), got, tc.want)
		}
	}
}

// A short job that arrives gets the GPU at once; a longer one does not.
func TestSRTFPreempts(t *testing.T) {
	t.Parallel()
	s := one(1)
	s.Job(s.App("A", "x"), 1, 1, 100)
	s.Run(t, baseline.SRTF{}, 10*time.Second)
	s.Job(s.App("B", "x"), 1, 1, 20)
	s.Run(t, baseline.SRTF{}, 5*time.Second)
	s.Job(s.App("C", "x"), 1, 1, 95)
	s.Run(t, baseline.SRTF{}, time.Hour)
	if got := ends(s); got != "A 120 B 30 C 215 " || s.Revoked != 1 {
		t.Errorf("ended at %q after %d revokes", got, s.Revoked)
	}
}

// A sweep of many short trials has more work left than one with a single longer trial.
func TestSRTFByApp(t *testing.T) {
	t.Parallel()
	s := one(1)
	a := s.App("A", "x")
	for range 5 {
		s.Job(a, 1, 1, 10)
	}
	s.Job(s.App("B", "x"), 1, 1, 20)
	for unit, want := range map[baseline.Unit]string{baseline.ByJob: "A", baseline.ByApp: "B"} {
		if got := granted(baseline.SRTF{Unit: unit}.Decide(s.View())); got != want {
			t.Errorf("by %s: granted %q, want %q", unit, got, want)
		}
	}
}

// Evictions take the jobs of lowest priority, and only as many as needed.
func TestEvictionsAreFew(t *testing.T) {
	t.Parallel()
	s := stagetest.New(stagetest.Nodes("gpu", 2, 4, 4)...)
	a := s.App("A", "x")
	for i := range 8 {
		runs(s.Job(a, 1, 1, int64(1000+i)), i/4, i%4)
	}
	s.Job(s.App("B", "x"), 2, 2, 10)
	p := baseline.SRTF{}.Decide(s.View())
	if len(p.Revokes) != 2 || p.Revokes[0].Job.Trial != 7 || p.Revokes[1].Job.Trial != 6 || len(p.Grants) != 0 {
		t.Errorf("revoked %+v, want the two with most time left", p.Revokes)
	}
	s.Job(s.App("C", "x"), 9, 9, 1)
	if p := (baseline.SRTF{}).Decide(s.View()); len(p.Revokes) != 2 {
		t.Errorf("revoked %+v for a job that cannot run", p.Revokes)
	}
}

// Evicting a job may be necessary for its cores although its device is not needed.
func TestEvictionForCores(t *testing.T) {
	t.Parallel()
	s := one(2)
	s.Nodes[0].CPUs = 4
	j := s.Job(s.App("A", "x"), 1, 1, 1000)
	j.Demand.CPUs = 4
	runs(j, 0, 1)
	s.Job(s.App("B", "x"), 1, 1, 10).Demand.CPUs = 2
	s.Run(t, baseline.SRTF{}, time.Hour)
	if got := ends(s); got != "A 1010 B 10 " {
		t.Errorf("ended at %q", got)
	}
}

func tiresias(promote float64) *baseline.Tiresias {
	return &baseline.Tiresias{Thresholds: []float64{10}, Interval: time.Second, Promote: promote}
}

// A job below the threshold has priority over one above it; within a queue, running jobs continue.
func TestTiresias(t *testing.T) {
	t.Parallel()
	s, p := one(1), tiresias(0)
	s.Job(s.App("A", "x"), 1, 1, 100)
	s.Run(t, p, 5*time.Second)
	s.Job(s.App("B", "x"), 1, 1, 100)
	s.Run(t, p, 3*time.Second)
	if s.Revoked != 0 {
		t.Fatalf("a job below the threshold was revoked after %v", s.Now)
	}
	s.Run(t, p, time.Hour) // A reaches 10 s and is stopped; B reaches as much at 20 s and continues
	if got := ends(s); got != "A 200 B 110 " || s.Revoked != 1 {
		t.Errorf("ended at %q after %d revokes", got, s.Revoked)
	}
}

// Attained service is GPUs x time: two GPUs reach the threshold in half the time.
func TestTiresiasCountsGPUs(t *testing.T) {
	t.Parallel()
	s, p := one(2), tiresias(0)
	s.Job(s.App("A", "x"), 2, 2, 200)
	s.Run(t, p, time.Second)
	s.Job(s.App("B", "x"), 1, 1, 5)
	s.Run(t, p, time.Hour)
	if got := ends(s); got != "A 105 B 10 " || s.Revoked != 1 {
		t.Errorf("ended at %q after %d revokes", got, s.Revoked)
	}
}

// With the knob at 2, A, which ran for 10 s, returns to the top queue after waiting for 20.
func TestTiresiasPromotes(t *testing.T) {
	t.Parallel()
	s, p := one(1), tiresias(2)
	s.Job(s.App("A", "x"), 1, 1, 15)
	s.Job(s.App("B", "x"), 1, 1, 100)
	s.Run(t, p, time.Hour)
	if got := ends(s); got != "A 35 B 115 " || s.Revoked != 2 {
		t.Errorf("ended at %q after %d revokes", got, s.Revoked)
	}
}
