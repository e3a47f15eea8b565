package themis_test

import (
	"testing"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/policytest"
)

// ended removes trials that have ended.
func (w *world) ended(a *policy.App, jobs ...int) {
	for _, i := range jobs {
		a.Jobs[i].Gangs = nil
	}
	var left []*policy.Job
	for _, j := range a.Jobs {
		if j.Running() {
			left = append(left, j)
		}
	}
	a.Jobs = left
}

// settled decides and ends leases until nothing changes, and returns the number of trials that were stopped.
func (w *world) settled(p policy.Policy) (stopped int) {
	for range 5 {
		plan := w.decide(p)
		if len(plan.Revokes)+len(plan.Grants) == 0 {
			return stopped
		}
		stopped += len(plan.Revokes)
		w.left()
		w.pass(time.Second)
	}
	w.tb.Error("the plans do not converge")
	return stopped
}

func TestThemisKeepsTheRulesAsJobsGrow(t *testing.T) {
	t.Parallel()
	policytest.Run(t, func() policy.Policy { return policyWith(t, "grow=30") })
}

// With grow, running elastic trials get devices that others left once these have been idle for long enough; without it,
// when their leases end.
func TestRunningJobsGrowOntoIdleDevices(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		option string
		most   int
		ends   []int
		want   int
	}{
		"not before leases end":   {"grow=0", 4, []int{2, 3}, 2},
		"two have two each":       {"grow=30", 4, []int{2, 3}, 4},
		"one of three has two":    {"grow=30", 4, []int{3}, 4},
		"the last has all":        {"grow=30", 4, []int{1, 2, 3}, 4},
		"no more than it can use": {"grow=30", 3, []int{1, 2, 3}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, p := newWorld(t, 4), policyWith(t, tc.option)
			a := w.submit("a", 4, tc.most, 100_000)
			w.decide(p)
			w.pass(time.Minute)
			w.ended(a, tc.ends...)
			before := held(a)
			plan := w.decide(p)
			if held(a) != before || len(plan.Revokes) > 0 {
				t.Errorf("it grows at once: %+v", plan)
			}
			if tc.want > before && !plan.Next.Equal(w.now.Add(30*time.Second)) {
				t.Errorf("it looks again at %v, and not after 30 s", plan.Next)
			}
			w.pass(30 * time.Second)
			stopped := w.settled(p)
			if held(a) != tc.want {
				t.Errorf("it holds %d, and not %d", held(a), tc.want)
			}
			if most := min(4-before, before); stopped > most {
				t.Errorf("%d jobs were stopped for %d devices", stopped, 4-before)
			}
			for _, j := range a.Jobs {
				if !j.Running() {
					t.Errorf("job %d has nothing any more", j.Trial)
				}
			}
		})
	}
}

// A trial is not stopped for devices that another trial waits for, that have not been free for long, or on which it is
// not faster.
func TestJobsDoNotGrowInTheWay(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(w *world, p policy.Policy, a *policy.App){
		"another trial waits": func(w *world, _ policy.Policy, _ *policy.App) {
			gangs := w.submit("b", 1, 4, 1000)
			gangs.Demand.Min, gangs.Jobs[0].Demand.Min = 4, 4
		},
		"one more is free only now": func(w *world, p policy.Policy, a *policy.App) {
			w.ended(a, 1)
			w.decide(p)
		},
		"it is no faster": func(_ *world, _ policy.Policy, a *policy.App) {
			for n := range 4 {
				a.Speeds.Measured = append(a.Speeds.Measured, cluster.Speed{Type: "gpu", Devices: n + 1, Rate: 1})
			}
		},
		"its sweep is paused": func(_ *world, _ policy.Policy, a *policy.App) { a.Paused = true },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, p := newWorld(t, 4), policyWith(t, "grow=30")
			a := w.submit("a", 4, 4, 100_000)
			w.decide(p)
			w.pass(time.Minute)
			w.ended(a, 3)
			w.decide(p)
			w.pass(30 * time.Second)
			change(w, p, a)
			if plan := w.decide(p); len(plan.Revokes) > 0 {
				t.Errorf("%+v", plan)
			}
		})
	}
}
