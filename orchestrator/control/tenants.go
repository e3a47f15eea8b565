package control

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/spec/terms"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Quotas hold in three places: a sweep that could never run within its tenant's is refused when it is submitted; the view's Free finds
// no place beyond them, whatever the policy; and what a tenant holds beyond a quota that was lowered, or when its device-hours are used
// up, is taken back here, the newest lease first.

// A SetTenant adds a tenant or changes one.
type SetTenant struct {
	// Tenant has been checked.
	Tenant *outbidv1.Tenant
	// Add: it must be new.
	Add   bool
	Actor string
	Done  func(error)
}

func (in SetTenant) apply(c *Core) {
	name := in.Tenant.GetName()
	if in.Add && c.st.Tenant(name) != nil {
		c.reply(func() {
			in.Done(fmt.Errorf("%w: there is a tenant %s already; change it with 'outbid tenant set'", state.ErrConflict, name))
		})
		return
	}
	if !proto.Equal(c.st.Tenant(name), in.Tenant) {
		c.emit(&outbidv1.Event{Kind: &outbidv1.Event_TenantChanged{TenantChanged: &outbidv1.TenantChanged{Tenant: in.Tenant, Actor: in.Actor}}})
	}
	c.reply(func() { in.Done(nil) })
}

// A RemoveTenant forgets what was set for a tenant whose sweeps have all ended.
type RemoveTenant struct {
	Tenant, Actor string
	Done          func(error)
}

func (in RemoveTenant) apply(c *Core) {
	err := func() error {
		if c.st.Tenant(in.Tenant) == nil {
			return fmt.Errorf("%w: there is no tenant %q", state.ErrNotFound, in.Tenant)
		}
		if n := c.st.TenantUse(in.Tenant, c.now).Sweeps; n > 0 {
			return fmt.Errorf("%w: tenant %s has %d sweeps that have not ended; stop them first", state.ErrConflict, in.Tenant, n)
		}
		c.emit(&outbidv1.Event{Kind: &outbidv1.Event_TenantRemoved{TenantRemoved: &outbidv1.TenantRemoved{Tenant: in.Tenant, Actor: in.Actor}}})
		return nil
	}()
	c.reply(func() { in.Done(err) })
}

// checkDeadline refuses a deadline that has passed.
func (c *Core) checkDeadline(s *outbidv1.SweepSpec) error {
	if _, at, _ := terms.ParseDeadline(s.GetDeadline()); !at.IsZero() && !at.After(c.now) {
		return fmt.Errorf("%w: deadline: %s has passed; it is %s", state.ErrInvalid, s.GetDeadline(), c.now.UTC().Format(time.RFC3339))
	}
	return nil
}

// mayBegin says why a tenant may not have another sweep of a spec just now, nil if it may.
func (c *Core) mayBegin(s *outbidv1.SweepSpec) error {
	name := state.TenantOf(s)
	if err := c.checkLimits(name, s, c.st.TenantUse(name, c.now)); err != nil {
		return err
	}
	t := c.st.Tenant(name)
	if t == nil {
		return nil
	}
	if s.GetExternal() != nil {
		return nil
	}
	if spent := c.st.SpentText(name, c.now); spent != "" {
		return fmt.Errorf("%w: tenant: %s", state.ErrConflict, spent)
	}
	return c.fitsQuota(name, t.GetQuota(), s)
}

// fitsQuota says why no trial of a spec could ever run within a quota.
func (c *Core) fitsQuota(name string, q *outbidv1.TenantQuota, s *outbidv1.SweepSpec) error {
	if q == nil {
		return nil
	}
	compiled, _ := terms.Of(s)
	d, most, kinds := compiled.Demand, 0, []string{}
	for _, kind := range c.typesFor(d, q) {
		n := state.Allows(q, kind)
		if n < 0 || n >= d.Min {
			return nil
		}
		if most = max(most, n); n < d.Min {
			kinds = append(kinds, fmt.Sprintf("%d of type %s", n, kind))
		}
	}
	if len(kinds) == 0 && (q.Devices == nil || int(q.GetDevices()) >= d.Min) {
		return nil // nothing is known of the types that it would run on
	}
	if d.Mixed && (q.Devices == nil || int(q.GetDevices()) >= d.Min) {
		return nil
	}
	if len(kinds) == 0 {
		kinds = []string{fmt.Sprintf("%d in all", q.GetDevices())}
	}
	return fmt.Errorf("%w: resources.devices.min: %d is more than tenant %s may hold at once by its quota: %s", state.ErrInvalid, d.Min, name,
		strings.Join(kinds, ", "))
}

// typesFor are the types of device that a demand accepts: those that it names, or those of the cluster and of the quota.
func (c *Core) typesFor(d cluster.Demand, q *outbidv1.TenantQuota) []string {
	var kinds []string
	add := func(kind string) {
		if d.Accepts(kind) && !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	for _, kind := range d.Types {
		add(kind)
	}
	for _, name := range c.st.NodeNames {
		for _, dev := range c.st.Nodes[name].Shape.Devices {
			add(dev.Type)
		}
	}
	slices.Sort(kinds)
	return kinds
}

// tenantsInView are the tenants as policies see them. One whose device-hours are used up may hold nothing.
func tenantsInView(list []*outbidv1.Tenant, spent map[string]bool) []policy.Tenant {
	var all []policy.Tenant
	for _, t := range list {
		all = append(all, policy.Tenant{Name: t.GetName(), Weight: policy.WeightOrOne(t.GetWeight()), Quota: quotaOf(t, spent[t.GetName()])})
	}
	return all
}

func quotaOf(t *outbidv1.Tenant, spent bool) cluster.Quota {
	q := cluster.Quota{Owner: t.GetName(), All: -1}
	if spent {
		q.All = 0
		return q
	}
	if t.GetQuota() != nil && t.GetQuota().Devices != nil {
		q.All = int(t.GetQuota().GetDevices())
	}
	for kind, n := range t.GetQuota().GetTypes() {
		if q.Of == nil {
			q.Of = map[string]int{}
		}
		q.Of[kind] = int(n)
	}
	return q
}

// meter finds out whose device-hours are used up, and when that changes next if all goes on as it does.
func (c *Core) meter() (spent map[string]bool, next time.Time) {
	var metered []*outbidv1.Tenant
	for _, t := range c.st.Tenants() {
		if limits := t.GetLimits(); limits != nil && limits.DeviceHours != nil {
			metered = append(metered, t)
		}
	}
	if len(metered) == 0 {
		return nil, next
	}
	uses := c.st.TenantUses(c.now, metered...)
	for i, t := range metered {
		over, changes := c.meterOne(t, uses[i])
		if over && spent == nil {
			spent = map[string]bool{}
		}
		if over {
			spent[t.GetName()] = true
		}
		if !changes.IsZero() && (next.IsZero() || changes.Before(next)) {
			next = changes
		}
	}
	return spent, next
}

// meterOne says whether a tenant's device-hours are used up, and when that changes if all goes on as it does; zero for never.
func (c *Core) meterOne(t *outbidv1.Tenant, use state.TenantUse) (over bool, changes time.Time) {
	left := t.GetLimits().GetDeviceHours()*3600 - use.DeviceSeconds
	if left <= 0 {
		return true, state.MonthEnds(c.now)
	}
	devices := 0
	for _, n := range use.Held {
		devices += n
	}
	if seconds := left / float64(max(1, devices)); devices > 0 && seconds < (31*24*time.Hour).Seconds() {
		return false, c.now.Add(time.Duration(seconds*float64(time.Second)) + time.Millisecond)
	}
	return false, changes
}

// takeBackSpent takes back what tenants hold beyond what they may.
func (c *Core) takeBackSpent() {
	c.spent, c.metered = c.meter()
	c.takeBack()
}

// holding is what a tenant that has a quota holds, without what is being taken back.
type holding struct {
	policy.Tenant
	held   map[string]int
	all    int
	leases []*state.Lease
}

// takeBack revokes what tenants hold beyond their quotas, the newest leases first.
func (c *Core) takeBack() {
	var bounded []*holding
	byName := map[string]*holding{}
	for _, t := range tenantsInView(c.st.Tenants(), c.spent) {
		if t.Quota.All >= 0 || len(t.Quota.Of) > 0 {
			h := &holding{Tenant: t, held: map[string]int{}}
			bounded, byName[t.Name] = append(bounded, h), h
		}
	}
	if len(bounded) == 0 {
		return
	}
	for _, s := range c.st.Live {
		if h := byName[state.TenantOf(s.Spec)]; h != nil {
			c.count(h, s)
		}
	}
	for _, h := range bounded {
		c.takeBackOf(h)
	}
}

// count adds what a sweep's trials hold.
func (c *Core) count(h *holding, s *state.Sweep) {
	for _, n := range s.Running {
		for _, l := range s.Trials[n].Leases {
			if l.Holder == state.Client || l.Revoking != outbidv1.RevokeKind_REVOKE_KIND_UNSPECIFIED {
				continue
			}
			h.leases = append(h.leases, l)
			for _, kind := range c.typesOf(l) {
				h.held[kind]++
				h.all++
			}
		}
	}
}

// takeBackOf revokes what a tenant holds beyond its quota.
func (c *Core) takeBackOf(h *holding) {
	slices.SortFunc(h.leases, func(a, b *state.Lease) int { return cmp.Compare(b.ID, a.ID) })
	for _, l := range h.leases {
		if within(h.Quota, h.held, h.all) {
			return
		}
		if !c.helps(h.Quota, h.held, h.all, l) {
			continue
		}
		for _, kind := range c.typesOf(l) {
			h.held[kind]--
			h.all--
		}
		s := c.st.Sweeps[l.Sweep]
		c.revokeLease(s, s.Trials[l.Trial], l, outbidv1.RevokeKind_REVOKE_KIND_PAUSE, c.whyBack(h.Tenant))
	}
}

func (c *Core) whyBack(t policy.Tenant) string {
	if c.spent[t.Name] {
		return c.st.SpentText(t.Name, c.now)
	}
	return fmt.Sprintf("tenant %s holds more than its quota allows", t.Name)
}

func (c *Core) typesOf(l *state.Lease) []string {
	var kinds []string
	for _, p := range l.Places {
		kinds = append(kinds, c.st.TypesAt(p)...)
	}
	return kinds
}

func within(q cluster.Quota, held map[string]int, all int) bool {
	for kind, most := range q.Of {
		if held[kind] > most {
			return false
		}
	}
	return q.All < 0 || all <= q.All
}

// helps says whether a lease holds something of which there is too much.
func (c *Core) helps(q cluster.Quota, held map[string]int, all int, l *state.Lease) bool {
	return q.All >= 0 && all > q.All || slices.ContainsFunc(c.typesOf(l), func(kind string) bool {
		most, named := q.Of[kind]
		return named && held[kind] > most
	})
}

// quotaBook counts what tenants hold, and are granted. It holds for one moment: what a tenant has is looked up once.
type quotaBook struct {
	c *Core
	// of each tenant that was asked about; nil for one that nothing bounds.
	of map[string]*quotaCount
}

// quotaCount is a tenant's quota and what it holds of it.
type quotaCount struct {
	quota cluster.Quota
	held  map[string]int
	all   int
}

func (c *Core) quotaBook() quotaBook { return quotaBook{c: c, of: map[string]*quotaCount{}} }

// find looks up what a tenant may have and has; nil if nothing bounds it.
func (b *quotaBook) find(name string) *quotaCount {
	if n, known := b.of[name]; known {
		return n
	}
	b.of[name] = nil
	t := b.c.st.Tenant(name)
	metered := t.GetLimits() != nil && t.GetLimits().DeviceHours != nil
	if t == nil || t.GetQuota() == nil && !metered {
		return nil
	}
	use := b.c.st.TenantUse(name, b.c.now)
	n := &quotaCount{held: use.Held}
	for _, devices := range use.Held {
		n.all += devices
	}
	spent := false
	if metered {
		spent, _ = b.c.meterOne(t, use)
	}
	n.quota = quotaOf(t, spent)
	b.of[name] = n
	return n
}

// take counts a grant, unless its tenant would hold more than its quota allows then.
func (b *quotaBook) take(s *state.Sweep, e *outbidv1.LeaseGranted) bool {
	n := b.find(state.TenantOf(s.Spec))
	if n == nil {
		return true
	}
	count := func(by int) {
		for _, p := range state.PlacesOf(e.GetPlaces()) {
			for _, kind := range b.c.st.TypesAt(p) {
				n.held[kind] += by
				n.all += by
			}
		}
	}
	count(1)
	if within(n.quota, n.held, n.all) {
		return true
	}
	count(-1)
	return false
}

// beyondQuota says whether a grant would have its tenant hold more than its quota allows.
func (c *Core) beyondQuota(s *state.Sweep, e *outbidv1.LeaseGranted) bool {
	book := c.quotaBook()
	return !book.take(s, e)
}

// SetTenant adds a tenant or changes one.
func (l *Loop) SetTenant(ctx context.Context, t *outbidv1.Tenant, add bool, actor string) error {
	_, err := do(ctx, l, func(done func(struct{}, error)) Input {
		return SetTenant{Tenant: proto.CloneOf(t), Add: add, Actor: actor, Done: func(err error) { done(struct{}{}, err) }}
	})
	return err
}

// RemoveTenant forgets what was set for a tenant.
func (l *Loop) RemoveTenant(ctx context.Context, tenant, actor string) error {
	_, err := do(ctx, l, func(done func(struct{}, error)) Input {
		return RemoveTenant{Tenant: tenant, Actor: actor, Done: func(err error) { done(struct{}{}, err) }}
	})
	return err
}

// TenantStates are the tenants that were added or have sweeps, by name.
func (l *Loop) TenantStates() []*outbidv1.TenantState {
	all := l.view.Load().TenantViews(l.clock.now())
	rates := l.rates.Load()
	for _, t := range all {
		name, use := t.GetTenant().GetName(), t.GetUse()
		use.Samplers = int32(l.samplers.held(name))
		if rates != nil {
			use.ReportRate = (*rates)[name]
		}
	}
	return all
}

// Tenant is what was set for a tenant, nil if nobody added it.
func (l *Loop) Tenant(name string) *outbidv1.Tenant { return l.view.Load().Tenant(name) }

// MemberOf are the tenants that name a member.
func (l *Loop) MemberOf(member string) []string {
	var all []string
	for _, t := range l.view.Load().Tenants() {
		if slices.Contains(t.GetMembers(), member) {
			all = append(all, t.GetName())
		}
	}
	return all
}

// Totals returns the cumulative counts of every tenant that ever had a sweep, by name.
func (l *Loop) Totals() []*state.Totals { return l.view.Load().Totals() }
