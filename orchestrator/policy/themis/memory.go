package themis

import (
	"maps"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/agent"
	"github.com/outbid-dev/outbid/orchestrator/policy"
)

// memory is what the arbiter remembers of an app's last table. What is remembered is replaced, never changed.
type memory struct {
	// Ideal is T_id in seconds.
	Ideal float64
	// Work is what was left then in device-seconds, on the devices that the app had after it; Had is the device-seconds
	// that it had had by then.
	Work, Had float64
	// Apps is N_avg then: Ideal follows as that changes, which the arbiter sees by itself.
	Apps float64
	// Share is the app's share of its tenant's weight then, which Ideal follows likewise; 0 if it does not.
	Share float64 `json:",omitempty"`
	// Least is the size of its smallest gang.
	Least int
	// IdleSince is since when it holds nothing; zero while it holds something.
	IdleSince time.Time
	// HeldAt is when it was last seen to hold something.
	HeldAt time.Time `json:",omitzero"`
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

// recall is what is remembered of the apps that are ranked, beside what was remembered before. One that has never been
// asked says what it would say now; state tells its agent how it stands.
func recall(
	v *policy.View, s *supply, all []standing, seen map[string]*memory, set *settings, state func(*policy.App) *agent.AppState,
) map[string]*memory {
	known := make(map[string]*memory, len(seen)+len(all))
	maps.Copy(known, seen)
	for i := range all {
		a := all[i].app
		m := known[a.ID]
		if m == nil || m.Ideal <= 0 || set.rank == passedOver && m.Chain == 0 {
			st := state(a)
			rho, ideal := agent.Estimate(st)
			m = remember(v, a, m, st, told{rho, ideal, held(a)}, set)
		}
		known[a.ID] = m.idle(v.Now, a, s)
	}
	return known
}

// held counts the devices that an app's jobs hold.
func held(a *policy.App) int {
	n := 0
	for _, j := range a.Jobs {
		n += j.Held().Size()
	}
	return n
}

// told is what a table says: an app's rho with so many devices, and T_id.
type told struct {
	rho, ideal float64
	devices    int
}

// remember is what the arbiter keeps of what it was told of an app; seen is what it knew before, nil for nothing.
func remember(v *policy.View, a *policy.App, seen *memory, s *agent.AppState, t told, set *settings) *memory {
	m := &memory{
		Ideal: t.ideal, Had: attained(v, a), Apps: max(1, v.MeanApps(a)), Least: max(1, a.Demand.Min), IdleSince: a.Submitted,
	}
	if !set.ownWeights {
		m.Share = s.Weight
	}
	if seen != nil {
		m.IdleSince, m.HeldAt = seen.IdleSince, seen.HeldAt
	}
	if set.rank == passedOver || set.short {
		m.Shortest, m.Most = agent.Shortest(s), max(1, agent.Most(s))
	}
	if set.rank == passedOver {
		if seen != nil && seen.Chain > 0 {
			m.Chain = seen.Chain
		} else {
			m.Chain = m.chain(s)
		}
	}
	left := max(0, t.rho*t.ideal-v.Now.Sub(a.Submitted).Seconds())
	if t.devices > 0 {
		m.Work = left * float64(t.devices)
	} else {
		m.Work = left * float64(m.Least) / waiting
	}
	return m
}

// chain is Chain of an app that is seen for the first time.
func (m *memory) chain(s *agent.AppState) float64 {
	weight := s.Weight
	if weight <= 0 {
		weight = 1
	}
	return max(1, m.Shortest*m.Apps/(m.Ideal*weight))
}

// idle is the memory with whether the app holds something now: devices on leases that are up, and reserved ones, count.
func (m *memory) idle(now time.Time, a *policy.App, s *supply) *memory {
	n := *m
	switch {
	case s.holds(a):
		n.IdleSince, n.HeldAt = time.Time{}, now
	case n.IdleSince.IsZero():
		n.IdleSince = n.waitsSince(a)
	}
	return &n
}

// waitsSince is since when an app that held something holds nothing and waits: since its jobs' leases ended, as far as jobs
// that had some still want devices; not before it was last seen to hold something, nor before any of its jobs wanted any.
func (m *memory) waitsSince(a *policy.App) time.Time {
	since, first := a.Submitted, time.Time{}
	if m.HeldAt.After(since) {
		since = m.HeldAt
	}
	for _, j := range a.Jobs {
		if j.Leases > 0 && j.Queued.After(since) {
			since = j.Queued
		}
		first = sooner(first, j.Queued)
	}
	if first.After(since) {
		return first
	}
	return since
}

// rho of an app with what it holds now, by its last table.
func (m *memory) rho(v *policy.View, a *policy.App) float64 { return m.with(v, a, held(a)) }

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
	left := max(0, m.shortest(v, a)-lease*float64(keeps)/float64(m.Most))
	return (v.Now.Sub(a.Submitted).Seconds() + lease + left) / (m.ideal(v, a) * m.Chain)
}

// shortest is the seconds that it has still to go if it wants for nothing from now on.
func (m *memory) shortest(v *policy.View, a *policy.App) float64 {
	if m.Work <= 0 {
		return m.Shortest
	}
	return m.Shortest * m.left(v, a) / m.Work
}

// ideal is T_id as it is by now.
func (m *memory) ideal(v *policy.View, a *policy.App) float64 {
	ideal := m.Ideal * max(1, v.MeanApps(a)) / m.Apps
	if share := v.ShareOf(a); m.Share > 0 && share > 0 {
		ideal *= m.Share / share
	}
	return ideal
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
