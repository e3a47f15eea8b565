package measure

import (
	"fmt"
	"slices"
	"time"
)

// Tenant is an owner of jobs with its weight relative to the others.
type Tenant struct {
	Name   string
	Weight float64
}

// App is one hyperparameter exploration, or a single job.
type App struct {
	Name, Tenant string
	// Sweep is its ID in the run's ledger, if there is one.
	Sweep string
	// Alone is the time in seconds that it takes alone on the whole cluster (Themis's T_cluster); 0 to compute it from
	// its jobs.
	Alone float64
	// Demand is the maximum number of devices that it can use when all its jobs are present. 0 means the highest demand
	// of its jobs at one time, which depends on how many could start.
	Demand int
	// Usable is the number of the cluster's devices that it accepts; 0 for all of them.
	Usable int
	// Phased is set if its jobs advance together: no job begins a phase before all have ended the one before
	// (successive halving). Reach is called when a job has ended one.
	Phased bool
	// Grows is set if a job may use more devices than it demands in later phases.
	Grows bool
}

// Job is one training run.
type Job struct {
	Name, Tenant string
	// Devices is the maximum number of devices it can use: its demand.
	Devices int
	// Isolated is the time in seconds that all of it takes alone with Devices, undisturbed; 0 if unknown.
	Isolated float64
	// Weight is relative to other jobs; 0 means 1.
	Weight float64
	// Utility returns the worth of its end this many seconds after its arrival, or is nil.
	Utility func(seconds float64) float64
	// Target is the time in seconds from its arrival until it should end; 0 for none. Decay is the cost of lateness,
	// per second; 0 if lateness has none.
	Target, Decay float64
}

// Lease is a lease of a job.
type Lease struct {
	// ID distinguishes it from other leases that its job holds at the same time.
	ID      uint64
	Devices int
	// Delay is the time in seconds to restore the checkpoint before training.
	Delay float64
	// Slowdown is S >= 1 for the location of the devices; 0 means 1.
	Slowdown float64
	// Where are the devices' numbers in the cluster, for a Gantt chart, or nil.
	Where []int
}

// Why is the reason for the end of a lease.
type Why int

// The reasons for the end of a lease: the job was preempted; or it is paused until it wants devices again; or it or its
// node failed, and it wants other devices; or it restarts, because its gang has a later target or its fork slot is
// over.
const (
	Preempted Why = iota
	Paused
	Failed
	Restarted
)

// Devices sets the number of devices from now on.
func (m *Meter) Devices(at float64, n int) {
	if !m.advance(at) {
		return
	}
	m.devices, m.mostDevices = n, max(m.mostDevices, n)
	m.eachTenant(func(t *tenant) { t.advance(m) })
	m.requota()
}

// Submit adds an app and returns its number. It lives until EndApp.
func (m *Meter) Submit(at float64, a App) int {
	m.advance(at)
	if len(m.apps) == 0 {
		m.first = at
	}
	m.apps = append(m.apps, app{App: a, submitted: at, appsBefore: m.appSeconds})
	m.liveApps++
	return len(m.apps) - 1
}

// EndApp ends an app: none of its jobs is running or wants to run.
func (m *Meter) EndApp(at float64, number int) {
	if !m.advance(at) || number < 0 || number >= len(m.apps) || m.apps[number].ended {
		m.fail("app %d ends twice, or does not exist", number)
		return
	}
	m.liveApps--
	m.apps[number].finish(m)
}

// Arrive adds a job, which wants devices from now on, and returns its number. app is the number of its app. If it is
// negative, the job is an app by itself, which ends with it.
func (m *Meter) Arrive(at float64, number int, j Job) int {
	own := number < 0
	if own {
		number = m.Submit(at, App{Name: j.Name, Tenant: j.Tenant})
	}
	if !m.advance(at) || number >= len(m.apps) {
		m.fail("job %s belongs to app %d, which does not exist", j.Name, number)
		return -1
	}
	if j.Weight == 0 {
		j.Weight = 1
	}
	t := m.tenantOf(j.Tenant)
	m.jobs = append(m.jobs, job{
		name: j.Name, app: number, own: own, tenant: t, demand: float64(j.Devices), isolated: j.Isolated, weight: j.Weight,
		utility: j.Utility, target: j.Target, decay: j.Decay, arrived: at,
	})
	m.activate(&m.jobs[len(m.jobs)-1])
	return len(m.jobs) - 1
}

// Want makes a resting job want devices again.
func (m *Meter) Want(at float64, number int) {
	j := m.at(at, number)
	if j == nil || j.state != resting {
		m.fail("job %d wants devices again, but is not resting", number)
		return
	}
	m.activate(j)
}

// Rest makes a waiting job rest.
func (m *Meter) Rest(at float64, number int) {
	j := m.at(at, number)
	if j == nil || j.state != waiting {
		m.fail("job %d rests, but is not waiting", number)
		return
	}
	m.deactivate(j)
}

// Grant gives a lease to a waiting job, or an additional one to a job that holds some.
func (m *Meter) Grant(at float64, number int, l Lease) {
	j := m.at(at, number)
	if j == nil || j.state != waiting && j.state != holding || l.Devices <= 0 || j.lease(l.ID) >= 0 {
		m.fail("job %d is granted %d devices, but is not waiting", number, l.Devices)
		return
	}
	if l.Slowdown == 0 {
		l.Slowdown = 1
	}
	if j.state == waiting {
		j.queued += at - j.since
		j.state, j.since = holding, at
	}
	j.tenant.advance(m)
	j.tenant.held += float64(l.Devices)
	m.held += l.Devices
	m.leases++
	j.held = append(j.held, held{Lease: l, since: at, serial: m.leases})
	m.starting(number, &j.held[len(j.held)-1])
}

// Release ends one of a job's leases. After the last, the job waits or rests.
func (m *Meter) Release(at float64, number int, lease uint64, why Why) {
	j := m.at(at, number)
	if j == nil || j.lease(lease) < 0 {
		m.fail("job %d releases a lease that it does not hold", number)
		return
	}
	m.release(j, j.lease(lease))
	if why == Preempted {
		m.preemptions++
	}
	if why == Paused && j.state == waiting {
		m.deactivate(j)
	}
}

// lease returns the index of a lease among those that a job holds, or -1.
func (j *job) lease(id uint64) int {
	return slices.IndexFunc(j.held, func(h held) bool { return h.ID == id })
}

// Reach ends a phase of a job. done is the fraction of its work that it has done so far.
func (m *Meter) Reach(at float64, number int, done float64) {
	j := m.at(at, number)
	if j == nil || j.state == over {
		m.fail("job %d ends a phase, but has ended or does not exist", number)
		return
	}
	m.apps[j.app].book(j, done)
}

// End ends a job and its leases. done is the fraction of its work that it did, from 0 to 1. completed is set if it did
// not fail; a job pruned by its tuner has completed.
func (m *Meter) End(at float64, number int, done float64, completed bool) {
	j := m.at(at, number)
	if j == nil || j.state == over {
		m.fail("job %d ends twice, or does not exist", number)
		return
	}
	for j.state == holding {
		m.release(j, 0)
	}
	if j.state == waiting {
		m.deactivate(j)
	}
	j.state = over
	m.last, m.deviceSecondsAtEnd, m.usedAtEnd = at, m.deviceSeconds, m.usedSeconds
	a := &m.apps[j.app]
	a.book(j, done)
	a.jobs++
	if completed {
		m.finish(j, done)
	} else {
		m.failed++
		a.failed++
	}
	if j.own {
		m.EndApp(at, j.app)
	}
}

// Decided records the time that a decision took.
func (m *Meter) Decided(took time.Duration) {
	m.decisions = append(m.decisions, float32(took.Seconds()*1e3))
}

// at advances to a time and returns a job, or nil if it does not exist or the time goes backwards.
func (m *Meter) at(at float64, number int) *job {
	if !m.advance(at) || number < 0 || number >= len(m.jobs) {
		return nil
	}
	return &m.jobs[number]
}

// fail stores the first invalid fact.
func (m *Meter) fail(format string, args ...any) {
	if m.err == nil {
		m.err = fmt.Errorf("measure at %g s: "+format, append([]any{m.now}, args...)...)
	}
}
