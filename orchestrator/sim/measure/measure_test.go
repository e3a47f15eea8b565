package measure_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/outbid-dev/outbid/orchestrator/sim/measure"
)

func result(t *testing.T, m *measure.Meter) measure.Result {
	t.Helper()
	r, err := m.Result(measure.Cost{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Two jobs of one device each share a cluster of one device: A runs at once for 100 s, B waits for it.
func TestTwoJobsByHand(t *testing.T) {
	t.Parallel()
	m := measure.New(measure.Config{Policy: "fifo", Bars: 10})
	m.Devices(0, 1)
	a := m.Arrive(0, -1, measure.Job{Name: "a", Devices: 1, Isolated: 100, Utility: func(s float64) float64 { return 1000 / s }})
	m.Grant(0, a, measure.Lease{Devices: 1, Where: []int{0}})
	b := m.Arrive(50, -1, measure.Job{Name: "b", Devices: 1, Isolated: 50})
	m.End(100, a, 1, true)
	m.Decided(2 * time.Millisecond)
	m.Decided(4 * time.Millisecond)
	m.Grant(100, b, measure.Lease{Devices: 1, Delay: 10, Slowdown: 1.25, Where: []int{0}})
	m.End(160, b, 1, true)
	got := result(t, m)
	want := measure.Result{
		Policy: "fifo", Jobs: 2, Makespan: 160, JCTMean: 105, JCTP50: 110, JCTP95: 110, JCTP99: 110,
		QueueMean: 25, SlowdownMean: (1 + 110./50) / 2, Apps: 2,
		// a lives 100 s with 1.5 apps on average, b 110 s, with two apps during 50 of them.
		RhoMax: 110. / (50 * 160. / 110), RhoP95: 110. / (50 * 160. / 110), RhoMean: (100./150 + 110./(50*160./110)) / 2,
		RhoWeighted: (100*100./150 + 50*110./(50*160./110)) / 150, RhoBound: 160. / 150,
		SIViolations: 1, ShareSlowdownMax: 110. / (50 * 160. / 110), ShareSlowdownMean: (100./150 + 110./(50*160./110)) / 2,
		ShareViolations: 1, SlowdownMax: 2.2, StaticRhoMax: 1.1, StaticViolations: 1, GPUSeconds: 160, Utilization: 150. / 160, PlacementScoreMean: (100 + 60/1.25) / 160,
		UtilityTotal: 10, DecisionMillisP50: 4, DecisionMillisP95: 4, DecisionMillisMax: 4, Decisions: 2, Leases: 2,
		// a holds 100 device-seconds of 50 + 50/2, b 60 of 50/2 + 60.
		JobSharingLoss: .5,
		// In its one interval the tenant (unnamed) had 160 of 160 device-seconds.
		TenantSharingLoss: 0,
	}
	x, y := 100./150, 110./(50*160./110)
	want.JainRho = (x + y) * (x + y) / (2 * (x*x + y*y))
	opts := cmp.Options{cmpopts.EquateApprox(1e-12, 0), cmpopts.IgnoreFields(measure.Result{}, "Series")}
	if diff := cmp.Diff(want, got, opts); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	wantBars := []measure.Bar{
		{Job: "a", App: "a", Devices: []int{0}, From: 0, Till: 100},
		{Job: "b", App: "b", Devices: []int{0}, From: 100, Till: 160},
	}
	if diff := cmp.Diff(wantBars, got.Series.Bars); diff != "" {
		t.Errorf("bars (-want +got):\n%s", diff)
	}
	if n := len(got.Series.Utilisation); n != 16 || got.Series.Utilisation[10].Value != 0 || got.Series.Utilisation[11].Value != 1 {
		t.Errorf("utilisation over time: %v", got.Series.Utilisation)
	}
}

// The worked example of Themis's section 5.2: 10,000 device-seconds of work, 16 devices, four apps on average. A finish
// after 5000 s is rho 2, and one after 10,000 s is rho 4.
func TestThemisWorkedExample(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ finish, rho float64 }{{5000, 2}, {10000, 4}} {
		m := measure.New(measure.Config{})
		m.Devices(0, 16)
		for i := range 3 {
			m.Submit(0, measure.App{Name: fmt.Sprint(i)})
		}
		app := m.Submit(0, measure.App{Name: "sha"})
		var jobs []int
		for range 4 {
			jobs = append(jobs, m.Arrive(0, app, measure.Job{Devices: 8, Isolated: 10000. / 4 / 8}))
		}
		for _, j := range jobs {
			m.Grant(0, j, measure.Lease{Devices: 1})
		}
		for _, j := range jobs {
			m.End(c.finish, j, 1, true)
		}
		m.EndApp(c.finish, app)
		if got := result(t, m); math.Abs(got.RhoMax-c.rho) > 1e-9 || got.SIViolations != 1 {
			t.Errorf("rho %v, want %v", got.RhoMax, c.rho)
		}
	}
}

// Two tenants with weights 3 and 1 share 8 devices. The first wants 4 and has them for half of the first hour; the
// second has one of its two.
func TestTenantsByHand(t *testing.T) {
	t.Parallel()
	m := measure.New(measure.Config{Tenants: []measure.Tenant{{Name: "big", Weight: 3}, {Name: "small", Weight: 1}}})
	m.Devices(0, 8)
	big := m.Arrive(0, -1, measure.Job{Tenant: "big", Devices: 4, Isolated: 3600})
	one := m.Arrive(0, -1, measure.Job{Tenant: "small", Devices: 1, Isolated: 7200})
	two := m.Arrive(0, -1, measure.Job{Tenant: "small", Devices: 1, Isolated: 7200})
	m.Grant(0, one, measure.Lease{Devices: 1})
	m.Grant(1800, big, measure.Lease{Devices: 4})
	m.Grant(3600, two, measure.Lease{Devices: 1})
	m.End(5400, big, 1, true)
	m.End(7200, one, 1, true)
	m.End(10800, two, 1, true)
	got := result(t, m)
	// big: hour 1 is half of its share, hour 2 all. small: hour 1 is half, hours 2 and 3 all.
	if want := 2. / 5; math.Abs(got.TenantSharingLoss-want) > 1e-12 {
		t.Errorf("tenant loss %v, want %v", got.TenantSharingLoss, want)
	}
	// big held 1 h of 1.5 h; small's first 2 h of 2 h; its second 2 h of 3 h.
	if want := 2. / 3; math.Abs(got.JobSharingLoss-want) > 1e-12 {
		t.Errorf("job loss %v, want %v", got.JobSharingLoss, want)
	}
}

func TestRestingIsNotQueueing(t *testing.T) {
	t.Parallel()
	m := measure.New(measure.Config{})
	m.Devices(0, 2)
	app := m.Submit(0, measure.App{})
	j := m.Arrive(0, app, measure.Job{Devices: 2, Isolated: 20})
	m.Grant(5, j, measure.Lease{Devices: 2})
	m.Release(10, j, 0, measure.Paused)
	m.Want(100, j)
	m.Rest(101, j)
	m.Want(110, j)
	m.Grant(112, j, measure.Lease{Devices: 1})
	m.Release(113, j, 0, measure.Preempted)
	m.Grant(120, j, measure.Lease{Devices: 1})
	m.End(130, j, .5, true)
	m.EndApp(130, app)
	got := result(t, m)
	if got.QueueMean != 5+1+2+7 || got.Preemptions != 1 || got.SlowdownMean != 13 || got.Leases != 3 || got.Apps != 1 {
		t.Errorf("%+v", got)
	}
}

func TestWhatCannotBeIsAnError(t *testing.T) {
	t.Parallel()
	for name, facts := range map[string]func(m *measure.Meter, j int){
		"in the past":                     func(m *measure.Meter, j int) { m.Grant(0, j, measure.Lease{Devices: 1}) },
		"but is not waiting":              func(m *measure.Meter, j int) { m.Grant(2, j, measure.Lease{}) },
		"3 of 2 devices":                  func(m *measure.Meter, j int) { m.Grant(2, j, measure.Lease{Devices: 3}); m.Devices(3, 2) },
		"that it does not hold":           func(m *measure.Meter, j int) { m.Release(2, j, 0, measure.Preempted) },
		"is not resting":                  func(m *measure.Meter, j int) { m.Want(2, j) },
		"job 0 ends twice":                func(m *measure.Meter, j int) { m.End(2, j, 1, true); m.End(3, j, 1, true) },
		"job 7 ends twice":                func(m *measure.Meter, _ int) { m.End(2, 7, 1, true) },
		"app 9 ends twice":                func(m *measure.Meter, _ int) { m.EndApp(2, 9) },
		"job x belongs to app 5":          func(m *measure.Meter, _ int) { m.Arrive(2, 5, measure.Job{Name: "x"}) },
		"job 0 rests, but is not waiting": func(m *measure.Meter, j int) { m.Rest(2, j); m.Rest(2, j) },
		"measure at 2 s: 5 of 2":          func(m *measure.Meter, j int) { m.Grant(2, j, measure.Lease{Devices: 5}); m.Devices(3, 2) },
	} {
		m := measure.New(measure.Config{})
		m.Devices(0, 2)
		j := m.Arrive(1, -1, measure.Job{Name: "j", Devices: 1})
		facts(m, j)
		if _, err := m.Result(measure.Cost{}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("error %v does not say %q", err, name)
		}
	}
}

func TestNothingHappened(t *testing.T) {
	t.Parallel()
	got := result(t, measure.New(measure.Config{Policy: "none"}))
	if diff := cmp.Diff(measure.Result{Policy: "none"}, got, cmpopts.IgnoreFields(measure.Result{}, "Series")); diff != "" {
		t.Error(diff)
	}
}

// script is a random run of single jobs on a cluster, first come first served, with preemptions.
type script struct {
	devices int
	jobs    []measure.Job
	arrive  []float64
}

func drawScript(t *rapid.T) script {
	s := script{devices: rapid.IntRange(1, 12).Draw(t, "devices")}
	at := 0.0
	for range rapid.IntRange(1, 25).Draw(t, "jobs") {
		at += float64(rapid.IntRange(0, 4000).Draw(t, "gap"))
		s.arrive = append(s.arrive, at)
		s.jobs = append(s.jobs, measure.Job{
			Tenant:  rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "tenant"),
			Devices: rapid.IntRange(1, s.devices).Draw(t, "gang"), Isolated: float64(rapid.IntRange(1, 5000).Draw(t, "length")),
			Weight: float64(rapid.IntRange(1, 3).Draw(t, "weight")),
		})
	}
	return s
}

// period is a time in which a job held devices.
type period struct{ from, till float64 }

// run plays the script and returns what happened, for a slow computation to compare with the meter.
func (s script) run(m *measure.Meter) (ends []float64, held []period) {
	m.Devices(0, s.devices)
	ends, held = make([]float64, len(s.jobs)), make([]period, len(s.jobs))
	numbers := make([]int, len(s.jobs))
	now, free, next, head := 0.0, s.devices, 0, 0
	running := map[int]float64{}
	for next < len(s.jobs) || len(running) > 0 {
		at, who := math.Inf(1), -1
		if next < len(s.jobs) {
			at = s.arrive[next]
		}
		for j, end := range running {
			if end < at || end == at && who > j {
				at, who = end, j
			}
		}
		now = at
		if who < 0 {
			numbers[next] = m.Arrive(now, -1, s.jobs[next])
			next++
		} else {
			m.End(now, numbers[who], 1, true)
			free += s.jobs[who].Devices
			ends[who], held[who].till = now, now
			delete(running, who)
		}
		for head < next && s.jobs[head].Devices <= free {
			m.Grant(now, numbers[head], measure.Lease{Devices: s.jobs[head].Devices})
			free -= s.jobs[head].Devices
			held[head].from = now
			running[head] = now + s.jobs[head].Isolated
			head++
		}
	}
	return ends, held
}

// TestAgainstSlowReckoning compares the meter's sums with integrals over every second.
func TestAgainstSlowReckoning(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := drawScript(t)
		m := measure.New(measure.Config{Tenants: []measure.Tenant{{Name: "a", Weight: 1}, {Name: "b", Weight: 2}, {Name: "c", Weight: .5}}})
		ends, held := s.run(m)
		got, err := m.Result(measure.Cost{})
		if err != nil {
			t.Fatal(err)
		}
		want := s.reckon(ends, held)
		near := func(name string, got, want float64) {
			if math.Abs(got-want) > 1e-6*(1+math.Abs(want)) {
				t.Errorf("%s is %v, want %v", name, got, want)
			}
		}
		near("jct", got.JCTMean, want.JCTMean)
		near("queue", got.QueueMean, want.QueueMean)
		near("rho", got.RhoMean, want.RhoMean)
		near("gpu seconds", got.GPUSeconds, want.GPUSeconds)
		near("utilisation", got.Utilization, want.Utilization)
		near("job loss", got.JobSharingLoss, want.JobSharingLoss)
		near("tenant loss", got.TenantSharingLoss, want.TenantSharingLoss)
		if got.JainRho <= 0 || got.JainRho > 1+1e-9 || got.RhoMax < got.RhoP95 || got.Utilization > 1+1e-9 {
			t.Errorf("impossible: %+v", got)
		}
		if got.Jobs != len(s.jobs) || got.Unfinished != 0 {
			t.Errorf("%d jobs, %d unfinished", got.Jobs, got.Unfinished)
		}
	})
}

// reckon computes the definitions with loops over every second, because all times of a script are whole.
func (s script) reckon(ends []float64, held []period) measure.Result {
	weights := map[string]float64{"a": 1, "b": 2, "c": .5}
	var want measure.Result
	n := float64(len(s.jobs))
	last := 0.0
	for _, e := range ends {
		last = max(last, e)
	}
	fair, alloc := make([]float64, len(s.jobs)), make([]float64, len(s.jobs))
	apps := make([]float64, len(s.jobs))
	type key struct {
		tenant string
		hour   int
	}
	tenantFair, tenantAlloc := map[key]float64{}, map[key]float64{}
	for second := 0.0; second < last; second++ {
		active, demand, weight := 0.0, map[string]float64{}, map[string]float64{}
		for i, j := range s.jobs {
			if s.arrive[i] <= second && second < ends[i] {
				active++
				demand[j.Tenant] += float64(j.Devices)
				weight[j.Tenant] += j.Weight
			}
		}
		for i, j := range s.jobs {
			if s.arrive[i] > second || second >= ends[i] {
				continue
			}
			apps[i] += active
			quota := float64(s.devices) * weights[j.Tenant] / 3.5
			share := min(demand[j.Tenant], quota)
			fair[i] += min(float64(j.Devices), share*j.Weight/weight[j.Tenant])
			k := key{j.Tenant, int(second / 3600)}
			if held[i].from <= second && second < held[i].till {
				alloc[i] += float64(j.Devices)
				tenantAlloc[k] += float64(j.Devices)
			}
			tenantFair[k] += share * j.Weight / weight[j.Tenant]
		}
	}
	lossy := 0.0
	for k, f := range tenantFair {
		if tenantAlloc[k] < f*(1-1e-9) {
			lossy++
		}
	}
	want.TenantSharingLoss = lossy / float64(len(tenantFair))
	for i, j := range s.jobs {
		jct := ends[i] - s.arrive[i]
		want.JCTMean += jct / n
		want.QueueMean += (jct - (held[i].till - held[i].from)) / n
		want.GPUSeconds += alloc[i]
		want.RhoMean += jct / (j.Isolated * apps[i] / jct) / n
		if alloc[i] < .95*fair[i] {
			want.JobSharingLoss += 1 / n
		}
	}
	want.Utilization = want.GPUSeconds / (float64(s.devices) * (last - s.arrive[0]))
	return want
}

// large plays a run of n jobs with one preemption each on 1,680 devices and returns the result.
func large(n int) (measure.Result, error) {
	m := measure.New(measure.Config{Bars: 1000})
	m.Devices(0, 1680)
	rng := rand.New(rand.NewPCG(1, 1))
	type running struct {
		job, devices int
	}
	var queue []running
	for i := range n {
		at := float64(i) * 27
		d := 1 << rng.IntN(4)
		j := m.Arrive(at, -1, measure.Job{Devices: d, Isolated: 3600, Tenant: fmt.Sprint("vc", i%15)})
		m.Grant(at, j, measure.Lease{Devices: d, Delay: 10})
		queue = append(queue, running{j, d})
		if len(queue) > 100 {
			old := queue[0]
			m.Release(at, old.job, 0, measure.Preempted)
			m.Grant(at, old.job, measure.Lease{Devices: old.devices, Delay: 10, Slowdown: 1.1})
			m.Decided(time.Millisecond)
			m.End(at, old.job, 1, true)
			queue = queue[1:]
		}
	}
	for _, old := range queue {
		m.End(float64(n)*27, old.job, 1, true)
	}
	return m.Result(measure.Cost{})
}

func TestLargeRun(t *testing.T) {
	t.Parallel()
	got, err := large(44_000)
	if err != nil || got.Jobs != 44_000 || len(got.Series.Utilisation) > 2048 {
		t.Fatalf("%v: %d jobs, %d points", err, got.Jobs, len(got.Series.Utilisation))
	}
}

func BenchmarkFacts(b *testing.B) {
	for b.Loop() {
		if _, err := large(44_000); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)*44_000*6/b.Elapsed().Seconds(), "facts/s")
}

// An app of a long and three short jobs that is alone on its cluster cannot be faster: its share slowdown is 1.
// Equation 2, which divides its work evenly over all four devices, gives 100 s over 40 s.
func TestUnlikeJobsAloneAreNotLate(t *testing.T) {
	t.Parallel()
	m := measure.New(measure.Config{})
	m.Devices(0, 4)
	app := m.Submit(0, measure.App{})
	for i, seconds := range []float64{10, 20, 30, 100} {
		j := m.Arrive(0, app, measure.Job{Devices: 1, Isolated: seconds})
		if j != i {
			t.Fatal(j)
		}
		m.Grant(0, j, measure.Lease{Devices: 1})
	}
	for j, seconds := range []float64{10, 20, 30, 100} {
		m.End(seconds, j, 1, true)
	}
	m.EndApp(100, app)
	if got := result(t, m); got.RhoMax != 2.5 || got.ShareSlowdownMax != 1 || got.ShareViolations != 0 {
		t.Errorf("rho %v, share slowdown %v, %d violations", got.RhoMax, got.ShareSlowdownMax, got.ShareViolations)
	}
}

// Lateness is recorded separately for steep and other utilities. Jobs without a target, and those that were dropped, do
// not count, and the end of a dropped job is worth nothing.
func TestTimeliness(t *testing.T) {
	t.Parallel()
	m := measure.New(measure.Config{})
	m.Devices(0, 8)
	worth := func(float64) float64 { return 1 }
	for i, j := range []measure.Job{
		{Target: 10, Decay: 1e-4}, {Target: 40, Decay: 1e-4}, {Target: 10, Decay: 4e-3}, {Target: 10}, {Target: 10, Decay: 1e-4},
	} {
		j.Devices, j.Isolated, j.Utility = 1, 20, worth
		if n := m.Arrive(0, -1, j); n != i {
			t.Fatal(n)
		}
	}
	for i := range 5 {
		m.End(20, i, 1, i != 4)
	}
	got := result(t, m)
	if got.LateMean != -5 || got.LateSD != math.Sqrt(450) || got.LateSteepMean != 10 || got.LateSteepSD != 0 || got.UtilityTotal != 4 || got.Failed != 1 {
		t.Errorf("late by %v (%v), steep ones by %v (%v), worth %v, %d failed", got.LateMean, got.LateSD, got.LateSteepMean, got.LateSteepSD, got.UtilityTotal, got.Failed)
	}
}
