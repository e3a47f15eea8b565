package rrh

import (
	"math"
	"testing"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/stagetest"
	"github.com/outbid-dev/outbid/orchestrator/spec/terms"
)

func create(t *testing.T, options map[string]string) *Policy {
	t.Helper()
	o := policy.NewOptions(options)
	p, ok := New(o).(*Policy)
	if err := o.Err(); err != nil || !ok {
		t.Fatal(err)
	}
	return p
}

func worth(j *policy.Job, priority, decay, target float64) {
	j.App.Utility = &terms.Utility{Kind: terms.Sigmoid, Worth: priority, Decay: decay, By: target}
}

func TestUtilityMatchesOASiS(t *testing.T) {
	t.Parallel()
	s := stagetest.New()
	j := s.Job(s.App("a", "t"), 1, 1, 1)
	worth(j, 80, 0.01, 600)
	u := utilityOf(j.App, 1, 1, 1, 10)
	for seconds, want := range map[float64]float64{600: 40, 0: 80 / (1 + math.Exp(-6)), 1200: 80 / (1 + math.Exp(6))} {
		if got := u.at(seconds); math.Abs(got-want) > 1e-9 {
			t.Errorf("an end after %g s is worth %g, want %g", seconds, got, want)
		}
	}
	j.App.Utility = nil
	u = utilityOf(j.App, 100, 2, 1, 10)
	for seconds, want := range map[float64]float64{50: 200, 100: 200, 600: 100, 2000: 0} {
		if got := u.at(seconds); math.Abs(got-want) > 1e-9 {
			t.Errorf("without labels an end after %g s is worth %g, want %g", seconds, got, want)
		}
	}
}

func TestWorthyAndUrgentJobsComeFirst(t *testing.T) {
	t.Parallel()
	s := stagetest.New(stagetest.Nodes("v100", 1, 1, 1)...)
	cheap, dear := s.Job(s.App("a", "t"), 1, 1, 1000), s.Job(s.App("b", "t"), 1, 1, 1000)
	worth(cheap, 10, 0, 0)
	worth(dear, 90, 0.002, 2000)
	s.Decide(t, create(t, nil))
	if !dear.Running() {
		t.Error("the cheaper job runs")
	}
}

// A running job pauses for one of higher reward, and continues when that has ended.
func TestJobsPauseAndGoOn(t *testing.T) {
	t.Parallel()
	s := stagetest.New(stagetest.Nodes("v100", 1, 2, 2)...)
	s.Stop = 5 * time.Second
	p := create(t, nil)
	long := s.Job(s.App("a", "t"), 2, 2, 40_000)
	worth(long, 50, 0, 0)
	s.Run(t, p, time.Minute)
	short := s.Job(s.App("b", "t"), 2, 2, 400)
	worth(short, 50, 0.01, 500)
	s.Run(t, p, time.Minute)
	if !short.Running() || s.Revoked != 1 {
		t.Fatalf("the urgent job holds %v after %d stops", short.Gang(), s.Revoked)
	}
	s.Run(t, p, 10*time.Hour)
	if len(s.Ended) != 2 || s.Revoked != 1 {
		t.Errorf("%d of 2 jobs ended, %d stops", len(s.Ended), s.Revoked)
	}
}

// A job that was not admitted waits for all that were, and still ends.
func TestRefusedJobsComeLast(t *testing.T) {
	t.Parallel()
	s := stagetest.New(stagetest.Nodes("v100", 1, 1, 1)...)
	p := create(t, map[string]string{"threshold": "5"})
	poor := s.Job(s.App("a", "t"), 1, 1, 10)
	worth(poor, 3, 0, 0)
	rich := s.Job(s.App("b", "t"), 1, 1, 100_000)
	worth(rich, 90, 0, 0)
	s.Run(t, p, time.Minute)
	if poor.Running() || !rich.Running() || p.s.Admitted[poor.Name()] || !p.s.Admitted[rich.Name()] {
		t.Errorf("%v holds %v", poor.Name(), poor.Gang())
	}
	s.Run(t, p, 100*time.Hour)
	if len(s.Ended) != 2 {
		t.Errorf("%d of 2 jobs ended", len(s.Ended))
	}
}

func TestManyJobsEndWithFewStops(t *testing.T) {
	t.Parallel()
	s := stagetest.New(stagetest.Nodes("v100", 4, 4, 4)...)
	s.Stop = 10 * time.Second
	p := create(t, nil)
	for i := range 60 {
		s.Job(s.App("a"+string(rune('a'+i)), "t"), 1+i%4, 4, int64(1000+i*3571%9000))
		s.Run(t, p, 3*time.Minute)
	}
	s.Run(t, p, 1000*time.Hour)
	if len(s.Ended) != 60 || s.Revoked > 120 {
		t.Errorf("%d of 60 jobs ended, %d stops", len(s.Ended), s.Revoked)
	}
	t.Logf("%d stops", s.Revoked)
}
