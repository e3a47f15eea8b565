package measure

import (
	"fmt"
	"slices"
	"time"
)

// Tenant is an owner of jobs with its weight relative to the others'.
type Tenant struct {
	Name   string
	Weight float64
}

// App is one hyperparameter exploration, or one job on its own.
type App struct {
	Name, Tenant string
	// Sweep is its id in the run's ledger, if there is one.
	Sweep string
	// Alone is the seconds it takes alone on the whole cluster (Themis's T_cluster); 0 to work it out from its jobs.
	Alone float64
	// Demand is the devices that it can use at most when all its jobs are there; 0 if that is the most that its jobs
	// demanded at a time, which depends on how many it was let start.
	Demand int
	// Usable is the devices of the cluster that it accepts; 0 for all of them.
	Usable int
	// Phased says that its jobs go on together: nobody begins a phase before all have ended the one before (successive
	// halving). Reach says when a job has ended one.
	Phased bool
	// Grows says that a job may use more devices than it demands in later phases.
	Grows bool
}

// Job is one training run.
type Job struct {
	Name, Tenant string
	// Devices it can use at most: what it demands.
	Devices int
	// Isolated is the seconds that the whole of it takes alone with Devices, undisturbed; 0 if unknown.
	Isolated float64
	// Weight relative to other jobs; 0 is taken for 1.
	Weight float64
	// Utility is what its end so many seconds after its arrival is worth; nil for nothing.
	Utility func(seconds float64) float64
	// Target is the seconds from its arrival in which it should end; 0 for none. Decay is how fast lateness hurts, per second; 0 if
	// it does not.
	Target, Decay float64
}

// Lease is what a job gets.
type Lease struct {
	// ID tells it from the others that its job holds at the same time.
	ID      uint64
	Devices int
	// Delay is the seconds in which it restores its checkpoint and does not train yet.
	Delay float64
	// Slowdown is S >= 1 of where the devices are; 0 is taken for 1.
	Slowdown float64
	// Where are the devices' numbers in the cluster, for a Gantt chart; nil if that is not wanted.
	Where []int
}

// Why says how a lease ended.
type Why int

// How leases end: the job was taken off its devices, or gave them up of its own accord and is paused until it wants some
// again, or it failed, or its node did, and it wants others; or its gang starts again for a later target, or its round of forks is
// over, and it wants them anew.
const (
	Preempted Why = iota
	Paused
	Failed
	Restarted
)

// Devices says how many devices there are from now on.
func (m *Meter) Devices(at float64, n int) {
	if !m.advance(at) {
		return
	}
	m.devices, m.mostDevices = n, max(m.mostDevices, n)
	m.eachTenant(func(t *tenant) { t.advance(m) })
	m.requota()
}

// Submit takes in an app and returns its number. It lives until EndApp.
func (m *Meter) Submit(at float64, a App) int {
	m.advance(at)
	if len(m.apps) == 0 {
		m.first = at
	}
	m.apps = append(m.apps, app{App: a, submitted: at, appsBefore: m.appSeconds})
	m.liveApps++
	return len(m.apps) - 1
}

// EndApp says that an app has ended: none of its jobs runs or wants to.
func (m *Meter) EndApp(at float64, number int) {
	if !m.advance(at) || number < 0 || number >= len(m.apps) || m.apps[number].ended {
		m.fail("app %d ends twice, or is not there", number)
		return
	}
	m.liveApps--
	m.apps[number].finish(m)
}

// Arrive takes in a job, which wants devices from now on, and returns its number. app is the number of its app; below 0
// the job is an app of its own, which ends with it.
func (m *Meter) Arrive(at float64, number int, j Job) int {
	own := number < 0
	if own {
		number = m.Submit(at, App{Name: j.Name, Tenant: j.Tenant})
	}
	if !m.advance(at) || number >= len(m.apps) {
		m.fail("job %s is of app %d, which is not there", j.Name, number)
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

// Want says that a job that rested wants devices again.
func (m *Meter) Want(at float64, number int) {
	j := m.at(at, number)
	if j == nil || j.state != resting {
		m.fail("job %d wants devices and does not rest", number)
		return
	}
	m.activate(j)
}

// Rest says that a job that waited wants no devices for now.
func (m *Meter) Rest(at float64, number int) {
	j := m.at(at, number)
	if j == nil || j.state != waiting {
		m.fail("job %d rests and does not wait", number)
		return
	}
	m.deactivate(j)
}

// Grant gives a lease to a job that waits, or another to one that holds some.
func (m *Meter) Grant(at float64, number int, l Lease) {
	j := m.at(at, number)
	if j == nil || j.state != waiting && j.state != holding || l.Devices <= 0 || j.lease(l.ID) >= 0 {
		m.fail("job %d is granted %d devices and does not wait", number, l.Devices)
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

// Release ends one of a job's leases. It waits after the last, or rests.
func (m *Meter) Release(at float64, number int, lease uint64, why Why) {
	j := m.at(at, number)
	if j == nil || j.lease(lease) < 0 {
		m.fail("job %d gives up devices and holds none", number)
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

// lease is where a lease stands among those that a job holds; -1 if it does not.
func (j *job) lease(id uint64) int {
	return slices.IndexFunc(j.held, func(h held) bool { return h.ID == id })
}

// Reach says that a job has ended a phase. done is the part of its work that it has done so far.
func (m *Meter) Reach(at float64, number int, done float64) {
	j := m.at(at, number)
	if j == nil || j.state == over {
		m.fail("job %d ends a phase, and has ended or is not there", number)
		return
	}
	m.apps[j.app].book(j, done)
}

// End says that a job has ended, its leases with it. done is the part of its work that it did, from 0 to 1; completed says
// that it came to its end as wished (stopped early by its tuner counts), and did not fail.
func (m *Meter) End(at float64, number int, done float64, completed bool) {
	j := m.at(at, number)
	if j == nil || j.state == over {
		m.fail("job %d ends twice, or is not there", number)
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

// Decided says how long a decision took.
func (m *Meter) Decided(took time.Duration) {
	m.decisions = append(m.decisions, float32(took.Seconds()*1e3))
}

// at advances to a time and finds a job; nil if it is not there, or the time goes backwards.
func (m *Meter) at(at float64, number int) *job {
	if !m.advance(at) || number < 0 || number >= len(m.jobs) {
		return nil
	}
	return &m.jobs[number]
}

// fail keeps the first fact that cannot be.
func (m *Meter) fail(format string, args ...any) {
	if m.err == nil {
		m.err = fmt.Errorf("measure at %g s: "+format, append([]any{m.now}, args...)...)
	}
}
