package sia

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/policytest"
	"github.com/outbid-dev/outbid/orchestrator/policy/stagetest"
)

func TestSiaKeepsTheRules(t *testing.T) {
	t.Parallel()
	policytest.Run(t, func() policy.Policy { return New(policy.NewOptions(nil)) })
}

// drawProgram draws jobs with configurations on one to three types.
func drawProgram(t *rapid.T, jobs, devices int) ([][]choice, []int) {
	free := rapid.SliceOfN(rapid.IntRange(0, devices), 1, 3).Draw(t, "free")
	sets := make([][]choice, jobs)
	for i := range sets {
		for range rapid.IntRange(0, 4).Draw(t, "configurations") {
			sets[i] = append(sets[i], choice{
				kind: rapid.IntRange(0, len(free)-1).Draw(t, "type"), devices: rapid.IntRange(1, 4).Draw(t, "devices"),
				worth: rapid.Float64Range(-0.2, 1.1).Draw(t, "worth"),
			})
		}
	}
	return sets, free
}

// worthOf returns the worth of a solution. It fails if a type is used beyond its capacity.
func worthOf(t *rapid.T, sets [][]choice, free, picked []int) float64 {
	sum, used := 0.0, make([]int, len(free))
	for i, c := range picked {
		if c >= 0 {
			sum += sets[i][c].worth
			used[sets[i][c].kind] += sets[i][c].devices
		}
	}
	for k := range used {
		if used[k] > free[k] {
			t.Fatalf("%d of %d devices are used", used[k], free[k])
		}
	}
	return sum
}

// most returns the largest worth, by trying everything.
func most(sets [][]choice, free []int) float64 {
	if len(sets) == 0 {
		return 0
	}
	best := most(sets[1:], free)
	for _, o := range sets[0] {
		if free[o.kind] >= o.devices {
			free[o.kind] -= o.devices
			best = max(best, o.worth+most(sets[1:], free))
			free[o.kind] += o.devices
		}
	}
	return best
}

func TestSmallProgramsAreSolvedExactly(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		sets, free := drawProgram(t, 5, 5)
		if got, want := worthOf(t, sets, free, solve(sets, free)), most(sets, free); math.Abs(got-want) > 1e-9 {
			t.Fatalf("worth %g, the best is %g", got, want)
		}
	})
}

// On programs that are small enough to solve exactly, the relaxation loses at most 1 % of the worth.
func TestTheRelaxationIsNearlyOptimal(t *testing.T) {
	t.Parallel()
	got, want := 0.0, 0.0
	rapid.Check(t, func(t *rapid.T) {
		sets, free := drawProgram(t, 30, 16)
		states := 1
		for _, n := range free {
			states *= n + 1
		}
		got += worthOf(t, sets, free, relaxed(sets, free))
		want += worthOf(t, sets, free, exact(sets, free, states))
	})
	if got < 0.99*want {
		t.Errorf("the relaxation reaches %.4f of the optimum", got/want)
	}
	t.Logf("the relaxation reaches %.4f of the optimum", got/want)
}

// speeds returns rates for numbers of devices of types, n devices making n^0.9 times the rate of one.
func speeds(rates map[string]float64) *cluster.Speeds {
	s := &cluster.Speeds{}
	for kind, rate := range rates {
		for n := 1; n <= 8; n++ {
			s.Measured = append(s.Measured, cluster.Speed{
				Type: kind, Devices: n, Locality: cluster.SameSlot, Rate: rate * math.Pow(float64(n), 0.9),
			})
		}
	}
	return s
}

// A job starts with one device and doubles from round to round, on the type on which it gains more than the other job.
func TestJobsDoubleOnTheTypeThatSuitsThem(t *testing.T) {
	t.Parallel()
	s := stagetest.New(append(stagetest.Nodes("a100", 1, 4, 4), stagetest.Nodes("t4", 1, 4, 4)...)...)
	gains, even := s.App("gains", "x"), s.App("even", "x")
	gains.Speeds, even.Speeds = speeds(map[string]float64{"a100": 8, "t4": 1}), speeds(map[string]float64{"a100": 1.1, "t4": 1})
	s.Job(gains, 1, 4, 1_000_000)
	s.Job(even, 1, 4, 1_000_000)
	p := New(policy.NewOptions(map[string]string{"restart": "1s"}))
	sizes := map[string][]int{}
	for range 40 {
		s.Run(t, p, 20*time.Second)
		for _, a := range s.View().Apps {
			for _, j := range a.Jobs {
				n := j.Gang().Size()
				if all := sizes[a.ID]; n > 0 && (len(all) == 0 || all[len(all)-1] != n) {
					sizes[a.ID] = append(all, n)
				}
				if kind := cluster.TypeOf(s.View().Nodes, j.Gang()); n == 4 && a.ID == "gains" && kind != "a100" {
					t.Errorf("the job that gains by it has 4 %s", kind)
				}
			}
		}
	}
	for _, id := range []string{"gains", "even"} {
		if all := sizes[id]; len(all) != 3 || all[0] != 1 || all[1] != 2 || all[2] != 4 {
			t.Errorf("%s had %v devices", id, all)
		}
	}
}
