package themis

import (
	"time"

	"github.com/outbid-dev/outbid/orchestrator/agent"
	"github.com/outbid-dev/outbid/orchestrator/policy"
)

// memory is what the arbiter remembers of an app's last table.
type memory struct {
	// Ideal is T_id in seconds.
	Ideal float64
	// Work is what was left then in device-seconds, on the devices that the app had after it; Had is the device-seconds
	// that it had had by then.
	Work, Had float64
	// Apps is N_avg then: Ideal follows as that changes, which the arbiter sees by itself.
	Apps float64
	// Least is the size of its smallest gang.
	Least int
	// IdleSince is since when it holds nothing; zero while it holds something.
	IdleSince time.Time
	// Shortest is the seconds that it had still to go then if it wanted for nothing, and Most the devices of that.
	Shortest float64 `json:",omitempty"`
	Most     int     `json:",omitempty"`
	// Chain is by how much longer than T_cluster the app would have taken alone on the whole cluster, when it was first
	// seen: equation 2 divides its work by its devices, but its phases wait for each other.
	Chain float64 `json:",omitempty"`
}

// waiting is what holding nothing costs, as the built-in agent has it: the speed is taken to be this part of that with
// the least gang.
const waiting = 4

// remember keeps what the arbiter knows of an app: T_id, and its rho with so many devices.
func (p *Policy) remember(v *policy.View, a *policy.App, s *agent.Situation, ideal, rho float64, devices int) {
	m := &memory{
		Ideal: ideal, Had: attained(v, a), Apps: max(1, v.MeanApps(a)), Least: max(1, a.Demand.Min), IdleSince: a.Submitted,
	}
	seen := p.Seen[a.ID]
	if seen != nil {
		m.IdleSince = seen.IdleSince
	}
	if p.set.rank == passedOver {
		m.foresee(s, seen)
	}
	left := max(0, rho*ideal-v.Now.Sub(a.Submitted).Seconds())
	if devices > 0 {
		m.Work = left * float64(devices)
	} else {
		m.Work = left * float64(m.Least) / waiting
	}
	p.Seen[a.ID] = m
}

// foresee keeps what rank=passed-over wants to know; seen is the memory before.
func (m *memory) foresee(s *agent.Situation, seen *memory) {
	m.Shortest, m.Most = agent.Shortest(s), max(1, agent.Most(s))
	if seen != nil && seen.Chain > 0 {
		m.Chain = seen.Chain
		return
	}
	weight := s.Weight
	if weight <= 0 {
		weight = 1
	}
	m.Chain = max(1, m.Shortest*m.Apps/(m.Ideal*weight))
}

// idle notes whether an app holds something, devices on leases that are up and promised ones included.
func (r *round) idle(a *policy.App, m *memory) {
	since := a.Submitted
	for _, j := range a.Jobs {
		if _, promised := r.kept[j]; promised || j.Running() {
			m.IdleSince = time.Time{}
			return
		}
		if j.Leases > 0 && j.Queued.After(since) {
			since = j.Queued // it held something until then
		}
	}
	if m.IdleSince.IsZero() {
		m.IdleSince = since
	}
}

// rho of an app with what it holds now, by its last table.
func (m *memory) rho(v *policy.View, a *policy.App) float64 {
	devices := 0
	for _, j := range a.Jobs {
		devices += j.Gang.Size()
	}
	return m.with(v, a, devices)
}

// with is its rho with so many devices.
func (m *memory) with(v *policy.View, a *policy.App, devices int) float64 {
	work := m.left(v, a)
	left := waiting * work / float64(m.Least)
	if devices > 0 {
		left = work / float64(devices)
	}
	return (v.Now.Sub(a.Submitted).Seconds() + left) / m.ideal(v, a)
}

// left is what is left by now of its work in device-seconds.
func (m *memory) left(v *policy.View, a *policy.App) float64 {
	return max(0, m.Work-(attained(v, a)-m.Had))
}

// passedOver is its rho if it is given nothing in this round beside the devices that it keeps, and has all it can use from
// the next round on.
func (m *memory) passedOver(v *policy.View, a *policy.App, keeps int, lease float64) float64 {
	rest := 1.0
	if m.Work > 0 {
		rest = m.left(v, a) / m.Work
	}
	left := max(0, m.Shortest*rest-lease*float64(keeps)/float64(m.Most))
	return (v.Now.Sub(a.Submitted).Seconds() + lease + left) / (m.ideal(v, a) * m.Chain)
}

// ideal is T_id as it is by now.
func (m *memory) ideal(v *policy.View, a *policy.App) float64 {
	return m.Ideal * max(1, v.MeanApps(a)) / m.Apps
}

// attained is the device-seconds that an app has had.
func attained(v *policy.View, a *policy.App) float64 {
	had := a.DeviceSeconds
	for _, j := range a.Jobs {
		if j.Running() {
			had += v.Attained(j) - j.DeviceSeconds
		}
	}
	return had
}

// current is what is remembered of an app in the visibility phase. One that has never been asked says what it would say now.
func (r *round) current(a *policy.App) *memory {
	m := r.p.Seen[a.ID]
	if m == nil || m.Ideal <= 0 || r.p.set.rank == passedOver && m.Chain == 0 {
		s := r.situation(a)
		rho, ideal := agent.Estimate(s)
		devices := 0
		for _, j := range a.Jobs {
			devices += j.Gang.Size()
		}
		r.p.remember(r.v, a, s, ideal, rho, devices)
		m = r.p.Seen[a.ID]
	}
	r.idle(a, m)
	return m
}

// forget drops apps that have ended.
func (p *Policy) forget(v *policy.View) {
	if len(p.Seen) <= 2*len(v.Apps)+16 {
		return
	}
	live, forecasts := make(map[string]*memory, len(v.Apps)), Forecasts{}
	for _, a := range v.Apps {
		if m := p.Seen[a.ID]; m != nil {
			live[a.ID] = m
		}
		if m := p.Forecasts[a.ID]; m != nil {
			forecasts[a.ID] = m
		}
	}
	p.Seen, p.Forecasts = live, forecasts
}

// promise keeps devices for a job until whoever holds them has left.
type promise struct {
	Job   policy.JobName
	Rho   float64
	Made  time.Time
	Nodes []promised
}

// promised is the devices of one node.
type promised struct {
	Node    string
	Devices []int
}
