package state

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/benbjohnson/immutable"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// DefaultTenant owns the sweeps that do not name a tenant.
const DefaultTenant = "default"

// TenantOf returns the tenant that owns a sweep.
func TenantOf(spec *outbidv1.SweepSpec) string { return cmp.Or(spec.GetTenant(), DefaultTenant) }

// tenancy holds the settings of tenants, and the costs of their leases. The maps are replaced and never changed,
// because readers have them.
type tenancy struct {
	// added tenants by name, or nil.
	added map[string]*outbidv1.Tenant
	// meters by tenant, or nil.
	meters *immutable.Map[string, meter]
}

// meter is the cost of the leases that have ended in a month.
type meter struct {
	month   int64
	seconds float64
}

// monthOf counts months since year 0, in UTC.
func monthOf(at time.Time) int64 {
	at = at.UTC()
	return int64(at.Year())*12 + int64(at.Month()) - 1
}

// MonthBegan returns when the month of a time began, in UTC.
func MonthBegan(at time.Time) time.Time {
	at = at.UTC()
	return time.Date(at.Year(), at.Month(), 1, 0, 0, 0, 0, time.UTC)
}

// MonthEnds returns when the month of a time ends, in UTC.
func MonthEnds(at time.Time) time.Time { return MonthBegan(at).AddDate(0, 1, 0) }

func (t *tenancy) tenantChanged(_ time.Time, e *outbidv1.TenantChanged) error {
	name := e.GetTenant().GetName()
	if name == "" {
		return broken("a tenant has no name")
	}
	next := maps.Clone(t.added)
	if next == nil {
		next = map[string]*outbidv1.Tenant{}
	}
	next[name] = e.GetTenant()
	t.added = next
	return nil
}

func (t *tenancy) tenantRemoved(_ time.Time, e *outbidv1.TenantRemoved) error {
	if t.added[e.GetTenant()] == nil {
		return broken("tenant %q is removed, but was not added", e.GetTenant())
	}
	next := maps.Clone(t.added)
	delete(next, e.GetTenant())
	t.added = next
	return nil
}

// charge adds the cost of a lease that ends to its tenant's month.
func (t *tenancy) charge(at time.Time, s *Sweep, l *Lease) {
	cost := l.since(MonthBegan(at), at)
	if cost == 0 {
		return
	}
	if t.meters == nil {
		t.meters = immutable.NewMap[string, meter](nil)
	}
	tenant := TenantOf(s.Spec)
	m, _ := t.meters.Get(tenant)
	if month := monthOf(at); m.month != month {
		m = meter{month: month}
	}
	m.seconds += cost
	t.meters = t.meters.Set(tenant, m)
}

// since returns the device-seconds that the lease cost between two times.
func (l *Lease) since(from, to time.Time) float64 {
	if l.Granted.After(from) {
		from = l.Granted
	}
	return max(0, to.Sub(from).Seconds()) * float64(l.Size())
}

// Tenant returns the settings of a tenant, or nil if it was not added.
func (t *tenancy) Tenant(name string) *outbidv1.Tenant { return t.added[name] }

// Tenants returns the tenants that were added, by name.
func (t *tenancy) Tenants() []*outbidv1.Tenant {
	return slices.SortedFunc(maps.Values(t.added), func(a, b *outbidv1.Tenant) int { return cmp.Compare(a.GetName(), b.GetName()) })
}

// metered returns the device-seconds of a tenant's leases that ended in the month of a time.
func (t *tenancy) metered(name string, now time.Time) float64 {
	if t.meters == nil {
		return 0
	}
	if m, _ := t.meters.Get(name); m.month == monthOf(now) {
		return m.seconds
	}
	return 0
}

// TenantUse is what a tenant uses at a time: the devices that its leases hold by type, its sweeps, and its
// device-seconds of the month.
type TenantUse struct {
	Held          map[string]int
	Sweeps        int
	DeviceSeconds float64
	// SpecBytes and CheckpointBytes are the sizes of the tenant's sweeps that were not deleted. ReportBytes is that
	// of the sweep with the most reports.
	SpecBytes, CheckpointBytes, ReportBytes int64
}

// count adds a sweep of the tenant.
func (u *TenantUse) count(s *Sweep, trial func(int32) *Trial, types func(Place) []string, now time.Time) {
	if !s.Done() {
		u.Sweeps++
	}
	for _, n := range s.Running {
		for _, l := range trial(n).Leases {
			u.DeviceSeconds += l.since(MonthBegan(now), now)
			for _, p := range l.Places {
				for _, kind := range types(p) {
					u.Held[kind]++
				}
			}
		}
	}
}

// TenantUse returns what a tenant uses at a time.
func (st *State) TenantUse(name string, now time.Time) TenantUse {
	return st.uses(now, name)[0]
}

// TenantUses returns what several tenants use at a time, in their order.
func (st *State) TenantUses(now time.Time, tenants ...*outbidv1.Tenant) []TenantUse {
	names := make([]string, len(tenants))
	for i, t := range tenants {
		names[i] = t.GetName()
	}
	return st.uses(now, names...)
}

func (st *State) uses(now time.Time, names ...string) []TenantUse {
	all, at := make([]TenantUse, len(names)), make(map[string]int, len(names))
	for i, name := range names {
		all[i] = TenantUse{Held: map[string]int{}, DeviceSeconds: st.metered(name, now)}
		at[name] = i
	}
	for _, s := range st.Live {
		if i, asked := at[TenantOf(s.Spec)]; asked {
			all[i].count(s, func(n int32) *Trial { return s.Trials[n] }, st.TypesAt, now)
		}
	}
	return all
}

// TenantViews returns the tenants that were added or have sweeps, by name, as users see them at a time.
func (p *Published) TenantViews(now time.Time) []*outbidv1.TenantState {
	uses := map[string]*TenantUse{}
	use := func(name string) *TenantUse {
		if uses[name] == nil {
			uses[name] = &TenantUse{Held: map[string]int{}, DeviceSeconds: p.metered(name, now)}
		}
		return uses[name]
	}
	for name := range p.added {
		use(name)
	}
	for _, id := range p.SweepIDs {
		if s, err := p.Sweep(id); err == nil {
			u, sweep := use(TenantOf(s.Sweep().Spec)), s.Sweep()
			u.count(sweep, s.At, p.typesAt, now)
			u.SpecBytes, u.CheckpointBytes = u.SpecBytes+sweep.SpecBytes, u.CheckpointBytes+sweep.CheckpointBytes
			u.ReportBytes = max(u.ReportBytes, sweep.ReportBytes)
		}
	}
	var all []*outbidv1.TenantState
	for _, name := range slices.Sorted(maps.Keys(uses)) {
		u, t := uses[name], p.added[name]
		v := &outbidv1.TenantState{
			Tenant: t, Added: t != nil, Use: &outbidv1.TenantUse{
				Held: map[string]int32{}, Sweeps: int32(u.Sweeps), DeviceHours: u.DeviceSeconds / 3600, Month: timestamppb.New(MonthBegan(now)),
				SpecBytes: u.SpecBytes, CheckpointBytes: u.CheckpointBytes, ReportBytes: u.ReportBytes,
			},
		}
		if t == nil {
			v.Tenant = &outbidv1.Tenant{Name: name, Weight: 1}
		}
		for kind, n := range u.Held {
			v.Use.Held[kind] = int32(n)
		}
		all = append(all, v)
	}
	return all
}

func (p *Published) typesAt(at Place) []string {
	n, ok := p.nodes.Get(at.Node)
	if at.Ended || !ok {
		return nil
	}
	kinds := make([]string, 0, len(at.Devices))
	for _, d := range at.Devices {
		kinds = append(kinds, n.View.GetInfo().GetDevices()[d].GetType())
	}
	return kinds
}

// Allows returns how many devices of a type a tenant may hold at once, or -1 for any number.
func Allows(q *outbidv1.TenantQuota, kind string) int {
	n, named := q.GetTypes()[kind]
	switch {
	case q.GetDevices() == 0 && (q == nil || q.Devices == nil) && !named:
		return -1
	case !named:
		return int(q.GetDevices())
	case q.Devices != nil:
		return int(min(n, q.GetDevices()))
	}
	return int(n)
}

// TenantUse returns what a tenant uses at a time.
func (p *Published) TenantUse(name string, now time.Time) TenantUse {
	u := TenantUse{Held: map[string]int{}, DeviceSeconds: p.metered(name, now)}
	for _, id := range p.SweepIDs {
		if s, err := p.Sweep(id); err == nil && TenantOf(s.Sweep().Spec) == name {
			u.count(s.Sweep(), s.At, p.typesAt, now)
		}
	}
	return u
}

// TenantFull returns why a tenant may not hold more devices for a demand now, or "" if it may.
func (p *Published) TenantFull(name string, d cluster.Demand, now time.Time) string {
	t := p.Tenant(name)
	if t.GetQuota() == nil && t.GetLimits() == nil {
		return ""
	}
	u := p.TenantUse(name, now)
	if spent := spentText(t, u, now); spent != "" {
		return spent
	}
	all := 0
	for _, n := range u.Held {
		all += n
	}
	if q := t.GetQuota(); q != nil && q.Devices != nil && all+d.Min > int(q.GetDevices()) {
		return fmt.Sprintf("tenant %s holds %d of the %d devices of its quota", name, all, q.GetDevices())
	}
	kinds, left := p.typesFor(d), 0
	for _, kind := range kinds {
		most := Allows(t.GetQuota(), kind)
		if most < 0 || u.Held[kind]+d.Min <= most {
			return ""
		}
		left += max(0, most-u.Held[kind])
	}
	if len(kinds) == 0 || d.Mixed && left >= d.Min {
		return ""
	}
	return fmt.Sprintf("the quota of tenant %s does not allow %d more devices of type %s", name, d.Min, strings.Join(kinds, " or "))
}

// typesFor returns the types of device that a demand names, or else those of the nodes that are up and that it accepts.
func (p *Published) typesFor(d cluster.Demand) []string {
	if len(d.Types) > 0 {
		return d.Types
	}
	var kinds []string
	for i := range p.Inventory.Nodes {
		for _, dev := range p.Inventory.Nodes[i].Devices {
			if d.Accepts(dev.Type) && !slices.Contains(kinds, dev.Type) {
				kinds = append(kinds, dev.Type)
			}
		}
	}
	slices.Sort(kinds)
	return kinds
}

// SpentText says that a tenant has used up its device-hours of the month, or is "" if it has not.
func (st *State) SpentText(name string, now time.Time) string {
	t := st.Tenant(name)
	if limits := t.GetLimits(); limits == nil || limits.DeviceHours == nil {
		return ""
	}
	return spentText(t, st.TenantUse(name, now), now)
}

func spentText(t *outbidv1.Tenant, u TenantUse, now time.Time) string {
	limits, used := t.GetLimits(), u.DeviceSeconds/3600
	if limits == nil || limits.DeviceHours == nil || used < limits.GetDeviceHours() {
		return ""
	}
	return fmt.Sprintf("tenant %s has used %.4g of its %g device-hours of %s (limits.device_hours); the next month begins on %s", t.GetName(),
		used, limits.GetDeviceHours(), now.UTC().Format("January 2006"), MonthEnds(now).Format(time.DateOnly))
}

func (t *tenancy) snapshotTenants(snap *outbidv1.StateSnapshot) {
	snap.Tenants = t.Tenants()
	if t.meters == nil {
		return
	}
	for i := t.meters.Iterator(); !i.Done(); {
		name, m, _ := i.Next()
		snap.Meters = append(snap.Meters, &outbidv1.TenantMeter{Tenant: name, Month: m.month, DeviceSeconds: m.seconds})
	}
	slices.SortFunc(snap.Meters, func(a, b *outbidv1.TenantMeter) int { return cmp.Compare(a.GetTenant(), b.GetTenant()) })
}

func (t *tenancy) restoreTenants(snap *outbidv1.StateSnapshot) {
	for _, added := range snap.GetTenants() {
		if t.added == nil {
			t.added = map[string]*outbidv1.Tenant{}
		}
		t.added[added.GetName()] = added
	}
	for _, m := range snap.GetMeters() {
		if t.meters == nil {
			t.meters = immutable.NewMap[string, meter](nil)
		}
		t.meters = t.meters.Set(m.GetTenant(), meter{m.GetMonth(), m.GetDeviceSeconds()})
	}
}
