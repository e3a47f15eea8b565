package state

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/benbjohnson/immutable"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Totals are the cumulative counts of one tenant since the ledger began. They never decrease, even if sweeps are
// deleted.
type Totals struct {
	Tenant string
	// DeviceMicros are the microseconds that leases held devices, by device type, summed over devices. They are
	// integers so that a lease counts the same while it runs and after its end.
	DeviceMicros map[string]int64
	// TrialsEnded counts ends of trials by state, and SweepsEnded those of sweeps. A trial or sweep that is resumed
	// and ends again counts again.
	TrialsEnded map[outbidv1.TrialState]int64
	SweepsEnded map[outbidv1.SweepState]int64
	// ForkFailures counts failures of training processes by kind.
	ForkFailures    map[outbidv1.FailureKind]int64
	SweepsSubmitted int64
}

const (
	// OtherTotals is the name under which tenants beyond maxCountedTenants, and device types beyond maxCountedTypes,
	// are counted. Neither can have this name.
	OtherTotals = "(others)"
	// Without tokens, a client may name any tenant, and totals are never dropped, so their number is limited. These
	// limits must not change, because they determine the state of a ledger.
	maxCountedTenants = 1000
	maxCountedTypes   = 100
)

// counting holds the totals of all tenants. Readers share the map and its values, which are replaced and never
// changed.
type counting struct {
	totals *immutable.Map[string, *Totals]
}

// countedAs returns the tenant under which a tenant's new sweep is counted: the tenant itself, unless there are too
// many.
func (c *counting) countedAs(tenant string) string {
	if c.totals == nil {
		return tenant
	}
	if _, known := c.totals.Get(tenant); !known && c.totals.Len() >= maxCountedTenants {
		return OtherTotals
	}
	return tenant
}

// count replaces a tenant's totals with a copy that add has changed.
func (c *counting) count(tenant string, add func(*Totals)) {
	if c.totals == nil {
		c.totals = immutable.NewMap[string, *Totals](nil)
	}
	next := Totals{Tenant: tenant}
	if known, ok := c.totals.Get(tenant); ok {
		next = *known
	}
	add(&next)
	c.totals = c.totals.Set(tenant, &next)
}

// plus returns a copy of a map with n added to a key.
func plus[K comparable](of map[K]int64, key K, n int64) map[K]int64 {
	next := make(map[K]int64, len(of)+1)
	maps.Copy(next, of)
	next[key] += n
	return next
}

// countSubmitted counts a new sweep.
func (c *counting) countSubmitted(s *Sweep) {
	s.countedAs = c.countedAs(TenantOf(s.Spec))
	c.count(s.countedAs, func(t *Totals) { t.SweepsSubmitted++ })
}

// meter determines how a new lease's devices, by type, are counted.
func (c *counting) meter(s *Sweep, l *Lease, devices map[string]int) {
	l.metered = make(map[string]int32, len(devices))
	for _, kind := range slices.Sorted(maps.Keys(devices)) {
		l.metered[c.meteredAs(s, kind)] += int32(devices[kind])
	}
}

// meteredAs returns the name under which a device type is counted, and adds it if it is new.
func (c *counting) meteredAs(s *Sweep, kind string) string {
	t, _ := c.totals.Get(s.countedAs)
	if _, known := t.DeviceMicros[kind]; known {
		return kind
	}
	if len(t.DeviceMicros) >= maxCountedTypes {
		kind = OtherTotals
	}
	c.count(s.countedAs, func(t *Totals) { t.DeviceMicros = plus(t.DeviceMicros, kind, 0) })
	return kind
}

// countLease counts the cost of a lease that ends.
func (c *counting) countLease(at time.Time, s *Sweep, l *Lease) {
	if len(l.metered) > 0 {
		c.count(s.countedAs, func(t *Totals) { t.DeviceMicros = l.meteredUntil(at, t.DeviceMicros) })
	}
}

// meteredUntil returns a copy of device-microseconds with the cost of a lease up to a time.
func (l *Lease) meteredUntil(at time.Time, before map[string]int64) map[string]int64 {
	held := max(0, at.Sub(l.Granted).Microseconds())
	next := maps.Clone(before)
	for kind, n := range l.metered {
		next[kind] += held * int64(n)
	}
	return next
}

// Totals returns the cumulative counts of every tenant that ever had a sweep, by name. Running leases count up to the
// newest batch. So the counts depend only on the ledger, and are the same on every machine and after every restart.
func (p *Published) Totals() []*Totals {
	if p.totals == nil {
		return nil
	}
	all := make(map[string]*Totals, p.totals.Len())
	for i := p.totals.Iterator(); !i.Done(); {
		name, t, _ := i.Next()
		shown := *t
		all[name] = &shown
	}
	for _, id := range p.SweepIDs {
		s, err := p.Sweep(id)
		if err != nil {
			continue
		}
		t := all[s.sweep.countedAs]
		for _, n := range s.sweep.Running {
			for _, l := range s.At(n).Leases {
				t.DeviceMicros = l.meteredUntil(p.Time, t.DeviceMicros)
			}
		}
	}
	return slices.SortedFunc(maps.Values(all), func(a, b *Totals) int { return cmp.Compare(a.Tenant, b.Tenant) })
}

func (c *counting) snapshotTotals() *outbidv1.Totals {
	all := &outbidv1.Totals{}
	if c.totals == nil {
		return all
	}
	for i := c.totals.Iterator(); !i.Done(); {
		name, t, _ := i.Next()
		all.Tenants = append(all.Tenants, &outbidv1.TenantTotals{
			Tenant: name, DeviceMicros: t.DeviceMicros, TrialsEnded: numbered(t.TrialsEnded), ForkFailures: numbered(t.ForkFailures),
			SweepsSubmitted: t.SweepsSubmitted, SweepsEnded: numbered(t.SweepsEnded),
		})
	}
	slices.SortFunc(all.GetTenants(), func(a, b *outbidv1.TenantTotals) int { return cmp.Compare(a.GetTenant(), b.GetTenant()) })
	return all
}

func numbered[E ~int32](of map[E]int64) map[int32]int64 {
	all := make(map[int32]int64, len(of))
	for e, n := range of {
		all[int32(e)] = n
	}
	return all
}

func named[E ~int32](of map[int32]int64) map[E]int64 {
	all := make(map[E]int64, len(of))
	for e, n := range of {
		all[E(e)] = n
	}
	return all
}

// restoreTotals restores the totals of a snapshot after its sweeps.
func (c *counting) restoreTotals(snap *outbidv1.StateSnapshot) {
	for _, r := range snap.GetTotals().GetTenants() {
		c.count(r.GetTenant(), func(t *Totals) {
			t.DeviceMicros, t.TrialsEnded = r.GetDeviceMicros(), named[outbidv1.TrialState](r.GetTrialsEnded())
			t.ForkFailures, t.SweepsEnded = named[outbidv1.FailureKind](r.GetForkFailures()), named[outbidv1.SweepState](r.GetSweepsEnded())
			t.SweepsSubmitted = r.GetSweepsSubmitted()
		})
	}
}
