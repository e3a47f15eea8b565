package gandivafair_test

import (
	"math"
	"testing"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/lab/policy/gandivafair"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/stagetest"
)

func create(t *testing.T, options map[string]string) policy.Policy {
	t.Helper()
	o := policy.NewOptions(options)
	p := gandivafair.New(o)
	if err := o.Err(); err != nil {
		t.Fatal(err)
	}
	return p
}

const day = 24 * time.Hour

func wantShare(t *testing.T, s *stagetest.Stage, tenant string, want float64) {
	t.Helper()
	all := 0.0
	for _, held := range s.Held {
		all += held
	}
	if got := s.Held[tenant] / all; math.Abs(got-want) > 0.02 {
		t.Errorf("%s held %.3f of the devices, want %.3f", tenant, got, want)
	}
}

// Section 3 of the paper: users get devices in proportion to their tickets, however many jobs they have.
func TestUsersShareByTicketsNotByJobs(t *testing.T) {
	t.Parallel()
	s := stagetest.New(stagetest.Nodes("v100", 2, 4, 4)...)
	for range 20 {
		s.Job(s.App("many", "a"), 1, 1, 1e9)
	}
	for range 4 {
		s.Job(s.App("few", "b"), 2, 2, 1e9)
	}
	s.Run(t, create(t, nil), 10*day)
	wantShare(t, s, "a", 0.5)

	s = stagetest.New(stagetest.Nodes("v100", 2, 4, 4)...)
	for range 8 {
		s.Job(s.App("x", "a"), 1, 1, 1e9)
		s.Job(s.App("y", "b"), 1, 1, 1e9)
	}
	s.Run(t, create(t, map[string]string{"tickets": "a=3"}), 10*day)
	wantShare(t, s, "a", 0.75)
}

// The paper's case for gang-awareness: one gang on the whole server competes with jobs of one device each. Without
// gang-awareness the gang never starts.
func TestGangsAreNotStarved(t *testing.T) {
	t.Parallel()
	s := stagetest.New(stagetest.Nodes("v100", 1, 4, 4)...)
	s.Job(s.App("big", "a"), 4, 4, 1e9)
	for range 4 {
		s.Job(s.App("small", "b"), 1, 1, 1e9)
	}
	s.Stop = 10 * time.Second
	s.Run(t, create(t, nil), 10*day)
	wantShare(t, s, "a", 0.5)
}

func TestJobsOfOneUserTakeTurns(t *testing.T) {
	t.Parallel()
	s := stagetest.New(stagetest.Nodes("v100", 1, 1, 1)...)
	a := s.App("x", "a")
	for range 3 {
		s.Job(a, 1, 1, 3600)
	}
	s.Run(t, create(t, map[string]string{"slice": "1m"}), day)
	for name, end := range s.Ended {
		if end < 170*time.Minute {
			t.Errorf("%v ended after %s, though three jobs of an hour share one device", name, end)
		}
	}
	if len(s.Ended) != 3 {
		t.Errorf("%d of 3 jobs ended", len(s.Ended))
	}
}

// Devices do not idle while other users are away, and a returning user has accumulated no credit.
func TestUsersAccumulateNoCredit(t *testing.T) {
	t.Parallel()
	s := stagetest.New(stagetest.Nodes("v100", 1, 4, 4)...)
	a := s.App("x", "a")
	for range 8 {
		s.Job(a, 1, 1, 1e9)
	}
	p := create(t, nil)
	s.Run(t, p, 5*day)
	wantShare(t, s, "a", 1)
	if s.Held["a"] < 4*5*day.Seconds()*0.999 {
		t.Error("devices idled")
	}
	b := s.App("y", "b")
	for range 8 {
		s.Job(b, 1, 1, 1e9)
	}
	clear(s.Held)
	s.Run(t, p, day)
	wantShare(t, s, "b", 0.5)
}

func TestSnapshotContinues(t *testing.T) {
	t.Parallel()
	s := stagetest.New(stagetest.Nodes("v100", 1, 2, 2)...)
	for range 5 {
		s.Job(s.App("x", "a"), 1, 1, 1e9)
		s.Job(s.App("y", "b"), 2, 2, 1e9)
	}
	p, q := create(t, nil), create(t, nil)
	s.Run(t, p, day)
	b, err := p.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	if err := q.Restore(b); err != nil {
		t.Fatal(err)
	}
	s.Now = s.Now.Add(time.Hour)
	one, two := p.Decide(s.View()), q.Decide(s.View())
	if len(one.Revokes) != len(two.Revokes) || len(one.Revokes) == 0 || one.Revokes[0].Job != two.Revokes[0].Job {
		t.Errorf("decided %+v and, from the snapshot, %+v", one, two)
	}
	if err := q.Restore([]byte("{")); err == nil {
		t.Error("took a broken snapshot")
	}
}
