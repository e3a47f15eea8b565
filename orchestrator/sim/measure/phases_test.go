package measure_test

import (
	"math"
	"testing"

	"github.com/outbid-dev/outbid/orchestrator/sim/measure"
)

// Successive halving alone on a cluster of four devices: four jobs of 100 s go to the first rung, two of them 200 s further, one
// 400 s further. The phases wait for each other, and so rho is 1 and not 700 s over the 300 s of equation 2.
func TestPhasesWaitForEachOther(t *testing.T) {
	t.Parallel()
	m := measure.New(measure.Config{Policy: "any"})
	m.Devices(0, 4)
	app := m.Submit(0, measure.App{Name: "halving", Demand: 4, Phased: true})
	var jobs []int
	for range 4 {
		jobs = append(jobs, m.Arrive(0, app, measure.Job{Devices: 1, Isolated: 700}))
	}
	begins := 0.0
	for _, phase := range []struct {
		until float64
		jobs  int
	}{{100, 4}, {300, 2}, {700, 1}} {
		for i, j := range jobs[:phase.jobs] {
			if begins > 0 && i < phase.jobs {
				m.Want(begins, j)
			}
			m.Grant(begins, j, measure.Lease{Devices: 1})
		}
		for _, j := range jobs[:phase.jobs] {
			m.Reach(phase.until, j, phase.until/700)
			m.Release(phase.until, j, measure.Rested)
		}
		begins = phase.until
	}
	for i, j := range jobs {
		m.End(700, j, []float64{1, 300. / 700, 100. / 700, 100. / 700}[i], true)
	}
	m.EndApp(700, app)
	got := result(t, m)
	if math.Abs(got.RhoMax-1) > 1e-9 || len(got.Series.Fates) != 1 {
		t.Fatalf("rho %v, want 1", got.RhoMax)
	}
	f := got.Series.Fates[0]
	want := measure.Fate{Policy: "any", App: "halving", Jobs: 4, Shared: 700, Alone: f.Alone, MeanApps: 1, Rho: f.Rho, DeviceSeconds: 1200}
	if f != want || math.Abs(f.Alone-700) > 1e-9 {
		t.Errorf("%+v, want %+v", f, want)
	}
}

// What an app could use does not depend on how many of its jobs it was let start at a time.
func TestDemandIsThatOfAllJobs(t *testing.T) {
	t.Parallel()
	m := measure.New(measure.Config{})
	m.Devices(0, 2)
	app := m.Submit(0, measure.App{Demand: 2})
	for at := 0.0; at < 200; at += 100 {
		j := m.Arrive(at, app, measure.Job{Devices: 1, Isolated: 100})
		m.Grant(at, j, measure.Lease{Devices: 1})
		m.End(at+100, j, 1, true)
	}
	m.EndApp(200, app)
	if got := result(t, m); math.Abs(got.RhoMax-2) > 1e-9 {
		t.Errorf("rho %v of jobs that could have run side by side, want 2", got.RhoMax)
	}
}
