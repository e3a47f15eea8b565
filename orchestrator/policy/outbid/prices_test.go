package outbid_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/stagetest"
	"github.com/outbid-dev/outbid/orchestrator/spec/terms"
)

// worth adds a sweep with one trial that takes the given seconds on one device, and with the utility most until by; 0
// for no utility.
func worth(s *stagetest.Stage, id string, seconds int64, most float64, by time.Duration) *policy.Job {
	a := s.App(id, "t")
	a.Speeds = &cluster.Speeds{Measured: []cluster.Speed{{Type: "v100", Devices: 1, Rate: 1}}}
	a.Demand, a.Tuner, a.TotalSteps = cluster.Demand{Min: 1, Max: 1}, "random", seconds
	if most > 0 {
		a.Utility = &terms.Utility{Kind: terms.Step, Worth: most, By: by.Seconds()}
	}
	return s.Job(a, 1, 1, seconds)
}

// On one device, the sweep with the highest worth for its time is admitted. The price of a full device excludes the
// others, and each gets as reason its cost and its worth.
func TestAdmissionIsByPrice(t *testing.T) {
	t.Parallel()
	s := stagetest.New(stagetest.Nodes("v100", 1, 1, 1)...)
	worth(s, "cheap", 3600, 10, 24*time.Hour)
	worth(s, "dear", 3600, 90, 24*time.Hour)
	worth(s, "late", 3600, 1000, time.Minute)
	plan := create(t).Decide(s.View())
	if len(plan.Grants) != 1 || plan.Grants[0].Job.App.ID != "dear" {
		t.Errorf("granted %+v, want dear", plan.Grants)
	}
	for _, want := range []string{
		"cheap is not admitted now: would cost 90 and be worth 10", "late is not admitted: its end would be worth nothing any more",
	} {
		if !strings.Contains(plan.Reason, want) {
			t.Errorf("reason %q, want %q in it", plan.Reason, want)
		}
	}
	if plan := create(t, "admission=none").Decide(s.View()); strings.Contains(plan.Reason, "admitted") {
		t.Errorf("without admission: %q", plan.Reason)
	}
}

// A sweep that is not admitted gets what would idle, and a sweep without a utility is always admitted.
func TestRefusedSweepGetsIdleDevices(t *testing.T) {
	t.Parallel()
	s := stagetest.New(stagetest.Nodes("v100", 1, 3, 3)...)
	worth(s, "late", 3600, 1000, time.Minute)
	worth(s, "says nothing", 3600, 0, 0)
	plan := create(t).Decide(s.View())
	granted := map[string]string{}
	for _, g := range plan.Grants {
		granted[g.Job.App.ID] = g.Reason
	}
	if len(granted) != 2 || !strings.Contains(granted["late"], "so it has what would idle") || strings.Contains(granted["says nothing"], "admitted") {
		t.Errorf("granted %v", granted)
	}
	s = stagetest.New(stagetest.Nodes("v100", 1, 1, 1)...)
	worth(s, "late", 3600, 1000, time.Minute)
	worth(s, "says nothing", 3600, 0, 0)
	if plan := create(t).Decide(s.View()); len(plan.Grants) != 1 || plan.Grants[0].Job.App.ID != "says nothing" {
		t.Errorf("on one device %+v", plan.Grants)
	}
}

// When its lease expires, a trial that is not admitted gets idle devices around it, although it could continue with
// those it had.
func TestRefusedSweepGrows(t *testing.T) {
	t.Parallel()
	s := stagetest.New(stagetest.Nodes("v100", 1, 4, 4)...)
	j := worth(s, "late", 100_000, 1000, time.Minute)
	j.Demand.Max, j.App.Demand.Max = 4, 4
	worth(s, "says nothing", 300, 0, 0)
	s.Run(t, create(t), 30*time.Minute)
	if got := j.Gang().Size(); got != 4 {
		t.Errorf("it holds %d of 4 devices, and no other trial wants any", got)
	}
}

// An overstated utility gains nothing over stating none: of equal sweeps, one that overstates its worth does not get
// more device time than the others.
func TestAnOverstatedWorthGainsNothing(t *testing.T) {
	t.Parallel()
	had := map[bool]float64{}
	for _, lies := range []bool{false, true} {
		s := stagetest.New(stagetest.Nodes("v100", 1, 4, 4)...)
		for i := range 8 {
			most := 0.0
			if lies && i == 3 {
				most = 1e9
			}
			worth(s, fmt.Sprint("app", i), 1e9, most, 1e6*time.Hour)
		}
		s.Run(t, create(t), 24*time.Hour)
		had[lies] = s.View().Attained(s.Apps[3].Jobs[0])
	}
	if had[true] > 1.1*had[false] {
		t.Errorf("it had %.0f device-seconds when it overstated its worth, and %.0f without", had[true], had[false])
	}
}

// An admitted sweep stays admitted when sweeps with a higher worth are submitted.
func TestAdmittedSweepStaysAdmitted(t *testing.T) {
	t.Parallel()
	s := stagetest.New(stagetest.Nodes("v100", 1, 1, 1)...)
	worth(s, "first", 100_000, 10, 1000*time.Hour)
	p := create(t)
	s.Decide(t, p)
	worth(s, "more", 100_000, 90, 1000*time.Hour)
	plan := s.Decide(t, p)
	if !strings.Contains(plan.Reason, "more is not admitted now") || strings.Contains(plan.Reason, "first") {
		t.Errorf("reason %q", plan.Reason)
	}
}
