package measure

import "math"

// tenant holds a tenant's integrals, and those of its jobs' fair shares.
type tenant struct {
	Tenant
	// at is the time up to which the integrals are computed, and period the number of the interval that contains it.
	at     float64
	period int
	// held is the number of held devices, demand that of its active jobs, quota its quota.
	held, demand, quota float64
	// weights is the sum over its active jobs, and active their number.
	weights float64
	active  int
	// allocated and fair are device-seconds in this interval.
	allocated, fair float64
	// classes are those of active jobs; byRatio finds them.
	classes []*class
	byRatio map[float64]*class
}

// class is the set of a tenant's active jobs with the same demand per weight. A job's share is its weight times s, with
// the same s for all of the tenant's jobs, limited by its demand: min(demand, weight * s) = weight * min(ratio, s). One
// integral of min(ratio, s) therefore serves them all. The number of classes is the number of different gangs and
// weights.
type class struct {
	ratio, integral float64
	jobs            int
}

func (m *Meter) tenantOf(name string) *tenant {
	if t := m.tenants[name]; t != nil {
		return t
	}
	t := m.addTenant(Tenant{Name: name, Weight: 1})
	m.eachTenant(func(t *tenant) { t.advance(m) })
	m.requota()
	return t
}

func (m *Meter) addTenant(named Tenant) *tenant {
	t := &tenant{Tenant: named, byRatio: make(map[float64]*class), at: m.now, period: int(m.now / m.cfg.Interval)}
	m.tenants[named.Name] = t
	m.order = append(m.order, t)
	m.weights += named.Weight
	return t
}

func (m *Meter) eachTenant(do func(*tenant)) {
	for _, t := range m.order {
		do(t)
	}
}

// requota recomputes the quotas. The caller has advanced the tenants.
func (m *Meter) requota() {
	for _, t := range m.order {
		t.quota = 0
		if m.weights > 0 {
			t.quota = float64(m.devices) * t.Weight / m.weights
		}
	}
}

// share returns s: the share of a job of weight 1.
func (t *tenant) share() float64 {
	if t.active == 0 || t.weights <= 0 {
		return 0
	}
	return min(t.demand, t.quota) / t.weights
}

// advance brings the integrals to the meter's time, interval by interval.
func (t *tenant) advance(m *Meter) {
	if t.at >= m.now {
		return
	}
	share := t.share()
	for _, c := range t.classes {
		c.integral += min(c.ratio, share) * (m.now - t.at)
	}
	fair := min(t.demand, t.quota)
	for t.at < m.now {
		end := float64(t.period+1) * m.cfg.Interval
		if t.idle(fair) && m.now > end {
			// The tenant wanted and held nothing since, so the intervals until now do not count.
			t.close(m)
			t.period = int(m.now / m.cfg.Interval)
			t.at = m.now
			return
		}
		until := min(end, m.now)
		t.allocated += t.held * (until - t.at)
		t.fair += fair * (until - t.at)
		t.at = until
		if until == end {
			t.close(m)
			t.period++
		}
	}
}

func (t *tenant) idle(fair float64) bool { return fair == 0 && t.held == 0 }

// close judges an interval in which the tenant wanted devices.
func (t *tenant) close(m *Meter) {
	if t.fair > 0 {
		m.intervals++
		if t.allocated < t.fair*(1-1e-9) {
			m.lossy++
		}
	}
	t.allocated, t.fair = 0, 0
}

// activate adds a job to those that want or hold devices.
func (t *tenant) activate(m *Meter, j *job) {
	t.advance(m)
	t.demand += j.demand
	t.weights += j.weight
	t.active++
	ratio := j.demand / j.weight
	c := t.byRatio[ratio]
	if c == nil {
		c = &class{ratio: ratio}
		t.byRatio[ratio] = c
		t.classes = append(t.classes, c)
	}
	c.jobs++
	j.class, j.fairBefore = c, c.integral
}

func (t *tenant) deactivate(m *Meter, j *job) {
	t.advance(m)
	j.fairly += j.weight * (j.class.integral - j.fairBefore)
	t.demand -= j.demand
	t.weights -= j.weight
	if t.active--; t.active == 0 {
		// Sums do not return to 0 exactly.
		t.demand, t.weights = 0, 0
	}
	if j.class.jobs--; j.class.jobs == 0 {
		t.drop(j.class)
	}
	j.class = nil
}

// drop removes a class without jobs.
func (t *tenant) drop(c *class) {
	delete(t.byRatio, c.ratio)
	for i := range t.classes {
		if t.classes[i] == c {
			last := len(t.classes) - 1
			t.classes[i] = t.classes[last]
			t.classes = t.classes[:last]
			return
		}
	}
}

// start is the time when a lease's devices begin to train.
type start struct {
	at          float64
	job, serial int
}

// startHeap is a heap with the next start first.
type startHeap []start

func (h *startHeap) push(s start) {
	*h = append(*h, s)
	a := *h
	for i := len(a) - 1; i > 0; {
		up := (i - 1) / 2
		if a[up].at <= a[i].at {
			break
		}
		a[up], a[i] = a[i], a[up]
		i = up
	}
}

func (h *startHeap) pop() start {
	a := *h
	first, last := a[0], len(a)-1
	a[0] = a[last]
	a = a[:last]
	*h = a
	for i := 0; ; {
		least, at := i, math.Inf(1)
		for _, down := range [2]int{2*i + 1, 2*i + 2} {
			if down < last && a[down].at < min(at, a[i].at) {
				least, at = down, a[down].at
			}
		}
		if least == i {
			return first
		}
		a[i], a[least] = a[least], a[i]
		i = least
	}
}
