package elastic

import (
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/stagetest"
)

func create(t *testing.T, maker func(*policy.Options) policy.Policy, options map[string]string) *Policy {
	t.Helper()
	o := policy.NewOptions(options)
	p, ok := maker(o).(*Policy)
	if err := o.Err(); err != nil || !ok {
		t.Fatal(err)
	}
	return p
}

// speeds returns speeds where n devices make n/(1+loss*(n-1)) times the rate of one.
func speeds(rate, loss float64, most int) *cluster.Speeds {
	s := &cluster.Speeds{}
	for n := 1; n <= most; n++ {
		s.Measured = append(s.Measured, cluster.Speed{
			Type: "v100", Devices: n, Locality: cluster.SameSlot, Rate: rate * float64(n) / (1 + loss*float64(n-1)),
		})
	}
	return s
}

// best returns the largest total worth of sizes, by brute force.
func best(jobs []*policy.Job, devices int, worth func(i, n int) float64) float64 {
	if len(jobs) == 0 {
		return 0
	}
	last := len(jobs) - 1
	most := math.Inf(-1)
	for n := jobs[last].Demand.Min; n <= min(devices, jobs[last].Demand.Max); n++ {
		most = max(most, worth(last, n)+best(jobs[:last], devices-n, worth))
	}
	return most
}

// drawStage has one node of 8 devices and jobs that all fit with their Min.
func drawStage(t *rapid.T) *stagetest.Stage {
	s := stagetest.New(stagetest.Nodes("v100", 1, 8, 8)...)
	left := 8
	for i := range rapid.IntRange(1, 4).Draw(t, "jobs") {
		least := rapid.IntRange(1, 2).Draw(t, "min")
		if left -= least; left < 0 {
			break
		}
		a := s.App(string(rune('a'+i)), "t")
		a.Speeds = speeds(rapid.Float64Range(0.5, 4).Draw(t, "rate"), rapid.Float64Range(0, 0.5).Draw(t, "loss"), 8)
		s.Job(a, least, least+rapid.IntRange(0, 5).Draw(t, "more"), int64(rapid.IntRange(1000, 100_000).Draw(t, "steps")))
	}
	return s
}

// The gains of these jobs fall with the number of devices, so the greedy algorithm must find the best division.
func TestOptimusIsTheBestDivision(t *testing.T) {
	t.Parallel()
	p := create(t, NewOptimus, nil)
	rapid.Check(t, func(t *rapid.T) {
		v := drawStage(t).View()
		jobs, inventory := v.Jobs(), v.Inventory()
		remaining := func(i, n int) float64 { return -float64(jobs[i].TotalSteps) / inventory.Rate(jobs[i], 0, n) }
		sum := 0.0
		sizes := p.sizer.sizes(v, inventory, jobs, []int{8}, true)
		for i, s := range sizes {
			sum += remaining(i, s.n)
		}
		if want := best(jobs, 8, remaining); math.Abs(sum-want) > 1e-6*math.Abs(want) {
			t.Fatalf("sizes %v leave %g s, the best %g s", sizes, -sum, -want)
		}
	})
}

func TestSLAQIsTheBestDivision(t *testing.T) {
	t.Parallel()
	p := create(t, NewSLAQ, nil)
	rapid.Check(t, func(t *rapid.T) {
		v := drawStage(t).View()
		jobs, inventory := v.Jobs(), v.Inventory()
		falls := func(i, n int) float64 {
			loss := predict(jobs[i])
			return loss(0) - loss(min(float64(jobs[i].TotalSteps), 570*inventory.Rate(jobs[i], 0, n)))
		}
		sum := 0.0
		for _, s := range p.sizer.sizes(v, inventory, jobs, []int{8}, true) {
			for i := range jobs {
				if jobs[i] == s.job {
					sum += falls(i, s.n)
				}
			}
		}
		if want := best(jobs, 8, falls); math.Abs(sum-want) > 1e-9 {
			t.Fatalf("losses fall by %g, at best by %g", sum, want)
		}
	})
}

func TestFitFindsTheCurve(t *testing.T) {
	t.Parallel()
	for name, loss := range map[string]func(k float64) float64{
		"1/k":         func(k float64) float64 { return 0.5 + 40/(k+30) },
		"exponential": func(k float64) float64 { return 0.2 + 3*math.Exp(-k/100) },
		"flat":        func(float64) float64 { return 7 },
	} {
		var curve []policy.Point
		for k := int64(10); k <= 300; k += 10 {
			curve = append(curve, policy.Point{Step: k, Value: loss(float64(k))})
		}
		change := max(loss(10)-loss(300), 1e-9)
		got := predict(&policy.Job{Curve: curve, Minimise: true})
		if want, have := (loss(300)-loss(600))/change, got(300)-got(600); math.Abs(want-have) > 0.01 {
			t.Errorf("%s: the normalised loss falls by %.4f, predicted were %.4f", name, want, have)
		}
		for i := range curve {
			curve[i].Value = -curve[i].Value
		}
		up := predict(&policy.Job{Curve: curve})
		if math.Abs((up(300)-up(600))-(got(300)-got(600))) > 1e-9 {
			t.Errorf("%s: a metric that grows is not its negative", name)
		}
	}
	if young := predict(&policy.Job{TotalSteps: 100}); young(0)-young(10) != 0.5 {
		t.Error("a job without reports is not as documented")
	}
	if fit([]policy.Point{{Step: 1, Value: 2}, {Step: 2, Value: math.NaN()}}, true) != nil {
		t.Error("a curve with NaN was fitted")
	}
}

// SLAQ's point (figure 1 of the paper): a job whose loss still falls has priority over one that has converged.
func TestSLAQFavoursFallingLoss(t *testing.T) {
	t.Parallel()
	s := stagetest.New(stagetest.Nodes("v100", 1, 4, 4)...)
	old, young := s.Job(s.App("a", "t"), 1, 4, 1e6), s.Job(s.App("b", "t"), 1, 4, 1e6)
	for k := int64(1); k <= 20; k++ {
		old.Curve = append(old.Curve, policy.Point{Step: 1000 * k, Value: 1 + math.Exp(-float64(k))})
		young.Curve = append(young.Curve, policy.Point{Step: 1000 * k, Value: 1 + 10/float64(k+20)})
	}
	old.Minimise, young.Minimise = true, true
	old.Step, young.Step = 20_000, 20_000
	s.Decide(t, create(t, NewSLAQ, nil))
	if old.Gang().Size() != 1 || young.Gang().Size() != 3 {
		t.Errorf("the converged job got %d devices, the other %d", old.Gang().Size(), young.Gang().Size())
	}
}

func TestOptimusGrowsShrinksAndRests(t *testing.T) {
	t.Parallel()
	s := stagetest.New(stagetest.Nodes("v100", 2, 4, 4)...)
	s.Stop = 20 * time.Second
	p := create(t, NewOptimus, nil)
	a := s.App("a", "t")
	a.Speeds = speeds(1, 0.05, 4)
	first := s.Job(a, 1, 4, 1e7)
	s.Run(t, p, time.Minute)
	if first.Gang().Size() != 4 {
		t.Fatalf("alone it holds %v", first.Gang())
	}
	var others []*policy.Job
	for range 5 {
		others = append(others, s.Job(a, 1, 4, 1e7))
	}
	s.Run(t, p, time.Hour)
	for _, j := range append(others, first) {
		if n := j.Gang().Size(); n < 1 || n > 2 {
			t.Errorf("six like jobs on 8 devices: one holds %d", n)
		}
	}
	if s.Revoked > 8 {
		t.Errorf("%d stops for five arrivals", s.Revoked)
	}
	before := s.Revoked
	s.Run(t, p, 24*time.Hour)
	if s.Revoked != before {
		t.Errorf("%d stops though nothing changed", s.Revoked-before)
	}
}

func TestEverythingEnds(t *testing.T) {
	t.Parallel()
	for name, maker := range map[string]func(*policy.Options) policy.Policy{
		"optimus": NewOptimus, "slaq": NewSLAQ, "dorm": NewDorm,
	} {
		s := stagetest.New(stagetest.Nodes("v100", 3, 4, 2)...)
		s.Stop = 15 * time.Second
		p := create(t, maker, nil)
		jobs := 0
		for i := range 10 {
			a := s.App(name+string(rune('a'+i)), "t")
			a.Speeds = speeds(1, 0.1, 4)
			for k := range 4 {
				s.Job(a, 1+k%2*(i%4), 4, int64(500+400*i*(k+1)))
				jobs++
			}
			s.Run(t, p, 7*time.Minute)
		}
		s.Run(t, p, 240*time.Hour)
		if len(s.Ended) != jobs {
			t.Errorf("%s: %d of %d jobs ended", name, len(s.Ended), jobs)
		}
		if s.Revoked > 6*jobs {
			t.Errorf("%s: %d stops of %d jobs", name, s.Revoked, jobs)
		}
		t.Logf("%s: %d stops, %d rounds", name, s.Revoked, s.Rounds)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	o := policy.NewOptions(map[string]string{"gain": "luck"})
	NewOptimus(o)
	if err := o.Err(); err == nil || !strings.Contains(err.Error(), "gain=luck: want one of time, throughput") {
		t.Errorf("error was %v", err)
	}
}
