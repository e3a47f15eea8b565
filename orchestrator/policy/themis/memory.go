package themis

import (
	"maps"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/bidder"
	"github.com/outbid-dev/outbid/orchestrator/policy"
)

// memory is what the arbiter remembers of a sweep's last table. Values are replaced, never modified.
type memory struct {
	// Ideal is T_id in seconds.
	Ideal float64
	// Work is the device-seconds that were left, on the devices that the sweep had after its last table. Had is its
	// device-seconds until then.
	Work, Had float64
	// Apps is N_avg at that time. Ideal is scaled as N_avg changes, which the arbiter observes itself.
	Apps float64
	// Share is the sweep's share of its tenant's weight at that time, which also scales Ideal, or 0 if it does not.
	Share float64 `json:",omitempty"`
	// Least is the size of its smallest gang.
	Least int
	// IdleSince is since when it holds nothing, or zero while it holds something.
	IdleSince time.Time
	// HeldAt is when it was last seen to hold something.
	HeldAt time.Time `json:",omitzero"`
	// Shortest is the seconds that it had left if it got all the devices that it can use, and Most the number of these
	// devices.
	Shortest float64 `json:",omitempty"`
	Most     int     `json:",omitempty"`
	// Chain is the time that the sweep would have needed alone on the whole cluster, over T_cluster, when it was first
	// seen: equation 2 divides its work by its devices, but its phases depend on each other.
	Chain float64 `json:",omitempty"`
}

// waiting is the cost of holding nothing, as in the built-in bidder: the speed counts as 1/waiting of that with the
// smallest gang.
const waiting = 4

// recall returns the memory of the ranked sweeps in addition to seen. A sweep that has never been asked is asked for
// its present rho; state builds its bidder's input.
func recall(
	v *policy.View, s *supply, all []sweepState, seen map[string]*memory, set *settings, state func(*policy.App) *bidder.AppState,
) map[string]*memory {
	known := make(map[string]*memory, len(seen)+len(all))
	maps.Copy(known, seen)
	for i := range all {
		a := all[i].app
		m := known[a.ID]
		if m == nil || m.Ideal <= 0 || set.Rank == passedOver && m.Chain == 0 {
			st := state(a)
			rho, ideal := bidder.Estimate(st)
			m = remember(v, a, m, st, tableReport{rho, ideal, devicesHeld(a)}, set)
		}
		known[a.ID] = m.withIdle(v.Now, a, s)
	}
	return known
}

// devicesHeld counts the devices that a sweep's trials hold.
func devicesHeld(a *policy.App) int {
	n := 0
	for _, j := range a.Jobs {
		n += j.Held().Size()
	}
	return n
}

// tableReport is what a table reports: a sweep's rho with a number of devices, and T_id.
type tableReport struct {
	rho, ideal float64
	devices    int
}

// remember returns the memory of a sweep after a table. seen is the earlier memory, or nil.
func remember(v *policy.View, a *policy.App, seen *memory, s *bidder.AppState, t tableReport, set *settings) *memory {
	m := &memory{
		Ideal: t.ideal, Had: attained(v, a), Apps: max(1, v.MeanApps(a)), Least: max(1, a.Demand.Min), IdleSince: a.Submitted,
	}
	if !set.OwnWeights {
		m.Share = s.Weight
	}
	if seen != nil {
		m.IdleSince, m.HeldAt = seen.IdleSince, seen.HeldAt
	}
	if set.Rank == passedOver || set.Short {
		m.Shortest, m.Most = bidder.Shortest(s), max(1, bidder.Most(s))
	}
	if set.Rank == passedOver {
		if seen != nil && seen.Chain > 0 {
			m.Chain = seen.Chain
		} else {
			m.Chain = m.initialChain(s)
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

// initialChain returns Chain for a sweep that is seen for the first time.
func (m *memory) initialChain(s *bidder.AppState) float64 {
	weight := s.Weight
	if weight <= 0 {
		weight = 1
	}
	return max(1, m.Shortest*m.Apps/(m.Ideal*weight))
}

// withIdle returns the memory, updated with whether the sweep holds something now. Devices on expired leases and
// reserved devices count.
func (m *memory) withIdle(now time.Time, a *policy.App, s *supply) *memory {
	n := *m
	switch {
	case s.holdsDevices(a):
		n.IdleSince, n.HeldAt = time.Time{}, now
	case n.IdleSince.IsZero():
		n.IdleSince = n.waitsSince(a)
	}
	return &n
}

// waitsSince returns since when a sweep that held something has been waiting with nothing: since the last lease of a
// trial that waits again ended, but not before the sweep was last seen to hold something, nor before any of its trials
// waited.
func (m *memory) waitsSince(a *policy.App) time.Time {
	since, first := a.Submitted, time.Time{}
	if m.HeldAt.After(since) {
		since = m.HeldAt
	}
	for _, j := range a.Jobs {
		if j.Leases > 0 && j.Queued.After(since) {
			since = j.Queued
		}
		first = earlier(first, j.Queued)
	}
	if first.After(since) {
		return first
	}
	return since
}

// rho returns the rho of a sweep with its present devices, by its last table.
func (m *memory) rho(v *policy.View, a *policy.App) float64 { return m.rhoWith(v, a, devicesHeld(a)) }

// rhoWith returns its rho with a number of devices.
func (m *memory) rhoWith(v *policy.View, a *policy.App, devices int) float64 {
	work := m.workLeft(v, a)
	left := waiting * work / float64(m.Least)
	if devices > 0 {
		left = work / float64(devices)
	}
	return (v.Now.Sub(a.Submitted).Seconds() + left) / m.ideal(v, a)
}

// workLeft returns the device-seconds of work that are left now.
func (m *memory) workLeft(v *policy.View, a *policy.App) float64 {
	return max(0, m.Work-(attained(v, a)-m.Had))
}

// passedOver returns its rho if it gets nothing in this round beyond the devices that it keeps, and all it can use from
// the next round on.
func (m *memory) passedOver(v *policy.View, a *policy.App, keeps int, lease float64) float64 {
	left := max(0, m.shortest(v, a)-lease*float64(keeps)/float64(m.Most))
	return (v.Now.Sub(a.Submitted).Seconds() + lease + left) / (m.ideal(v, a) * m.Chain)
}

// shortest returns the seconds that it has left if it gets all the devices that it can use from now on.
func (m *memory) shortest(v *policy.View, a *policy.App) float64 {
	if m.Work <= 0 {
		return m.Shortest
	}
	return m.Shortest * m.workLeft(v, a) / m.Work
}

// ideal returns the present T_id.
func (m *memory) ideal(v *policy.View, a *policy.App) float64 {
	ideal := m.Ideal * max(1, v.MeanApps(a)) / m.Apps
	if share := v.ShareOf(a); m.Share > 0 && share > 0 {
		ideal *= m.Share / share
	}
	return ideal
}

// attained returns the device-seconds of a sweep so far.
func attained(v *policy.View, a *policy.App) float64 {
	had := a.DeviceSeconds
	for _, j := range a.Jobs {
		if j.Running() {
			had += v.Attained(j) - j.DeviceSeconds
		}
	}
	return had
}
