package measure

import "slices"

// Config configures a Meter.
type Config struct {
	Policy string
	// Tenants have weights. A tenant that is not listed has weight 1 and counts from its first job on.
	Tenants []Tenant
	// Interval is the time in seconds over which a tenant's rho is computed; 0 is an hour.
	Interval float64
	// Bars is the number of leases that are kept for a Gantt chart; later ones are dropped.
	Bars int
}

// hour is the default interval of tenants' fairness.
const hour = 3600.0

// Meter takes facts and computes the figures.
type Meter struct {
	cfg Config
	now float64
	err error

	devices, mostDevices, held int
	// used is the number of devices whose jobs train; starts are the leases that will begin to train, by time.
	used   int
	starts startHeap

	jobs     []job
	apps     []app
	liveApps int
	// appSeconds is the integral of the number of apps, and busySeconds the time with at least one app.
	appSeconds, busySeconds float64

	tenants map[string]*tenant
	order   []*tenant
	weights float64

	// first is the first arrival, last the last end.
	first, last float64
	// The integrals of devices that are present, held and used, and of held ones divided by S.
	deviceSeconds, heldSeconds, usedSeconds, placed float64
	line                                            timeline
	bars                                            []Bar
	barsLeftOut                                     int

	jcts, queues, slowdowns       []float64
	fates                         []Fate
	fair, unfair                  int
	intervals, lossy              int
	utility                       float64
	late, lateSteep               []float64
	preemptions, leases, failed   int
	decisions                     []float32
	deviceSecondsAtEnd, usedAtEnd float64
	rhosOverOne                   int
}

// New returns a meter at time 0 of a cluster without devices.
func New(cfg Config) *Meter {
	if cfg.Interval <= 0 {
		cfg.Interval = hour
	}
	m := &Meter{cfg: cfg, tenants: make(map[string]*tenant), line: newTimeline()}
	for _, t := range cfg.Tenants {
		m.addTenant(t)
	}
	m.requota()
	return m
}

// Now returns the time of the last fact.
func (m *Meter) Now() float64 { return m.now }

// Done returns the number of jobs that have ended, and of those that have not.
func (m *Meter) Done() (done, live int) {
	done = len(m.jcts) + m.failed
	return done, len(m.jobs) - done
}

// advance lets time pass. It returns false if time would go backwards.
func (m *Meter) advance(at float64) bool {
	if at < m.now {
		m.fail("a fact at %g s is in the past", at)
		return false
	}
	for len(m.starts) > 0 && m.starts[0].at <= at {
		s := m.starts.pop()
		m.pass(s.at)
		j := &m.jobs[s.job]
		if i := slices.IndexFunc(j.held, func(h held) bool { return h.serial == s.serial }); i >= 0 {
			j.held[i].training = true
			m.used += j.held[i].Devices
		}
	}
	m.pass(at)
	return true
}

// pass adds up what is constant until at.
func (m *Meter) pass(at float64) {
	dt := at - m.now
	if dt <= 0 {
		return
	}
	// Facts of one moment come in any order, but must be consistent once time passes.
	if m.held > m.devices {
		m.fail("%d of %d devices are held", m.held, m.devices)
	}
	m.appSeconds += dt * float64(m.liveApps)
	if m.liveApps > 0 {
		m.busySeconds += dt
	}
	m.heldSeconds += dt * float64(m.held)
	if len(m.jobs) > 0 {
		m.deviceSeconds += dt * float64(m.devices)
		m.usedSeconds += dt * float64(m.used)
		m.line.add(m.now, at, float64(m.used), float64(m.devices))
	}
	m.now = at
}

type jobState int

const (
	resting jobState = iota
	waiting
	holding
	over
)

// job is the state of a job.
type job struct {
	name             string
	app              int
	own              bool
	tenant           *tenant
	demand, isolated float64
	weight           float64
	utility          func(float64) float64
	target, decay    float64
	arrived, queued  float64
	state            jobState
	// since is the time when it began to wait, or to hold the first of its leases.
	since      float64
	held       []held
	class      *class
	fairBefore float64
	// done is the fraction of its work that its app has recorded, and phase the next phase there.
	done              float64
	phase             int
	allocated, fairly float64
}

// held is a lease that a job holds.
type held struct {
	Lease
	since float64
	// serial numbers the leases of all jobs; training is set once its devices are used.
	serial   int
	training bool
}

// activate makes a resting job want devices.
func (m *Meter) activate(j *job) {
	j.state, j.since = waiting, m.now
	m.apps[j.app].want(j.demand)
	j.tenant.activate(m, j)
}

// deactivate makes a waiting job rest.
func (m *Meter) deactivate(j *job) {
	j.queued += m.now - j.since
	j.state = resting
	m.apps[j.app].want(-j.demand)
	j.tenant.deactivate(m, j)
}

// starting schedules the time when a lease's devices begin to be used.
func (m *Meter) starting(number int, h *held) {
	if h.Delay <= 0 {
		h.training = true
		m.used += h.Devices
		return
	}
	m.starts.push(start{at: m.now + h.Delay, job: number, serial: h.serial})
}

// release ends one of a job's leases. After the last, the job waits.
func (m *Meter) release(j *job, i int) {
	h := &j.held[i]
	deviceSeconds := (m.now - h.since) * float64(h.Devices)
	j.allocated += deviceSeconds
	m.apps[j.app].held += deviceSeconds
	m.placed += deviceSeconds / h.Slowdown
	j.tenant.advance(m)
	j.tenant.held -= float64(h.Devices)
	m.held -= h.Devices
	if h.training {
		m.used -= h.Devices
	}
	m.bar(j, h)
	if j.held = slices.Delete(j.held, i, i+1); len(j.held) == 0 {
		j.state, j.since = waiting, m.now
	}
}

// finish records a completed job.
func (m *Meter) finish(j *job, done float64) {
	jct := m.now - j.arrived
	m.jcts = append(m.jcts, jct)
	m.queues = append(m.queues, j.queued)
	if alone := j.isolated * done; alone > 0 {
		m.slowdowns = append(m.slowdowns, jct/alone)
	}
	if j.fairly > 0 {
		m.fair++
		if j.allocated/j.fairly < sharingLoss {
			m.unfair++
		}
	}
	if j.utility != nil {
		m.utility += j.utility(jct)
	}
	m.lateness(j, jct)
}

// lateness records the time from a job's target to its end; negative if it ended before.
func (m *Meter) lateness(j *job, jct float64) {
	switch {
	case j.target <= 0 || j.decay <= 0:
	case fall/j.decay <= steep:
		m.lateSteep = append(m.lateSteep, jct-j.target)
	default:
		m.late = append(m.late, jct-j.target)
	}
}

// A utility is steep if it falls from nine tenths of its worth to one tenth within half an hour. The time of that fall
// is fall / decay.
const (
	fall  = 4.394449154672439 // 2 ln 9
	steep = 1800.0
)

// sharingLoss is the rho below which a job has lost by sharing (ASTRAEA, section 6.3).
const sharingLoss = 0.95

// app is the state of an app.
type app struct {
	App
	submitted, appsBefore float64
	// demand is that of its jobs now, and mostDemand the highest so far.
	demand, mostDemand float64
	// phases are the phases of its jobs; one if it is not phased.
	phases []phase
	// held is the device-seconds that it had.
	held         float64
	jobs, failed int
	ended        bool
}

// phase is the joint work of an app's jobs.
type phase struct {
	// work is in device-seconds, longest is the time in seconds that the longest job takes alone, and demand the
	// devices of all jobs.
	work, longest, demand float64
}

// book adds the work of a job since it was last recorded.
func (a *app) book(j *job, done float64) {
	at := 0
	if a.Phased {
		at = j.phase
		j.phase++
	}
	for len(a.phases) <= at {
		a.phases = append(a.phases, phase{})
	}
	p, seconds := &a.phases[at], max(0, done-j.done)*j.isolated
	j.done = max(j.done, done)
	if seconds == 0 {
		return
	}
	p.work += seconds * j.demand
	p.longest = max(p.longest, seconds)
	p.demand += j.demand
}

// work returns all device-seconds of an app's jobs: the budget B of equation 2.
func (a *app) work() float64 {
	sum := 0.0
	for _, p := range a.phases {
		sum += p.work
	}
	return sum
}

// alone returns the least time that the app takes with this many devices for itself. No phase ends before its longest
// job does, even if devices are idle, nor begins before the previous one has ended. Jobs count as divisible over time,
// so no schedule is faster.
func (a *app) alone(devices, demand float64) float64 {
	sum := 0.0
	for _, p := range a.phases {
		most := demand
		if a.Phased && !a.Grows {
			most = p.demand
		}
		switch {
		case most <= 0:
		case a.Grows: // its longest job may use the devices that the others leave
			sum += p.work / min(devices, most)
		default:
			sum += max(p.work/min(devices, most), p.longest)
		}
	}
	return sum
}

func (a *app) want(devices float64) {
	a.demand += devices
	a.mostDemand = max(a.mostDemand, a.demand)
}

// finish records an app that ended. One whose jobs all failed, or whose duration is unknown, has no rho.
func (a *app) finish(m *Meter) {
	a.ended = true
	shared := m.now - a.submitted
	mean := float64(m.liveApps + 1)
	if shared > 0 {
		mean = (m.appSeconds - a.appsBefore) / shared
	}
	devices, most := float64(m.mostDevices), max(float64(a.Demand), a.mostDemand)
	if a.Usable > 0 {
		devices = min(devices, float64(a.Usable))
	}
	alone, share := a.Alone, a.Alone*mean
	if alone == 0 && most > 0 && devices > 0 {
		alone, share = a.work()/min(devices, most), a.alone(devices/mean, most)
	}
	if alone <= 0 || a.jobs == 0 || a.failed == a.jobs {
		return
	}
	f := Fate{
		Policy: m.cfg.Policy, App: a.Name, Sweep: a.Sweep, Tenant: a.Tenant, Jobs: a.jobs, Submitted: a.submitted - m.first, Shared: shared,
		Alone: alone, MeanApps: mean, Rho: shared / (alone * mean), Share: share, ShareSlowdown: shared / share,
		DeviceSeconds: a.held,
	}
	m.fates = append(m.fates, f)
	if f.Rho > 1+1e-9 {
		m.rhosOverOne++
	}
}
