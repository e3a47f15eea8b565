package measure_test

import (
	"math"
	"testing"

	"github.com/outbid-dev/outbid/orchestrator/sim/measure"
)

// Successive halving alone on a cluster of four devices: four jobs of 100 s run in the first rung, two of them 200 s
// more, one 400 s more. By equation 2 that is 1,200 device-seconds on four devices, and rho is 700 s over 300 s. But
// the phases wait for each other, so no share makes it faster than 700 s.
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
			m.Release(phase.until, j, 0, measure.Paused)
		}
		begins = phase.until
	}
	for i, j := range jobs {
		m.End(700, j, []float64{1, 300. / 700, 100. / 700, 100. / 700}[i], true)
	}
	m.EndApp(700, app)
	got := result(t, m)
	if math.Abs(got.RhoMax-7./3) > 1e-9 || math.Abs(got.ShareSlowdownMax-1) > 1e-9 || len(got.Series.Fates) != 1 {
		t.Fatalf("rho %v, share slowdown %v: want 7/3 and 1", got.RhoMax, got.ShareSlowdownMax)
	}
	f := got.Series.Fates[0]
	want := measure.Fate{
		Policy: "any", App: "halving", Jobs: 4, Shared: 700, Alone: f.Alone, MeanApps: 1, Rho: f.Rho, Share: f.Share,
		ShareSlowdown: f.ShareSlowdown, DeviceSeconds: 1200,
	}
	if f != want || math.Abs(f.Alone-300) > 1e-9 || math.Abs(f.Share-700) > 1e-9 {
		t.Errorf("%+v, want %+v", f, want)
	}
}

// The demand of an app does not depend on the number of its jobs that were started at a time.
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

// An app alone on the only type that it accepts has its full share.
func TestDevicesThatAnAppRefusesAreNoShareOfIts(t *testing.T) {
	t.Parallel()
	m := measure.New(measure.Config{})
	m.Devices(0, 10)
	app := m.Submit(0, measure.App{Demand: 4, Usable: 1})
	for at := 0.0; at < 400; at += 100 {
		j := m.Arrive(at, app, measure.Job{Devices: 1, Isolated: 100})
		m.Grant(at, j, measure.Lease{Devices: 1})
		m.End(at+100, j, 1, true)
	}
	m.EndApp(400, app)
	if got := result(t, m); math.Abs(got.RhoMax-1) > 1e-9 {
		t.Errorf("rho %v on the one device that it can use, want 1", got.RhoMax)
	}
}
