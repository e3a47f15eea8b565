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

// Quotas are enforced in three places. A sweep that could never run within its tenant's quota is refused when it is
// submitted. The view's Free finds no place beyond a quota, whatever the policy is. And here, leases beyond a quota
// are revoked, newest first, when the quota is lowered or the tenant's device-hours are used up.

// A SetTenant adds or changes a tenant.
type SetTenant struct {
	// Tenant has been checked.
	Tenant *outbidv1.Tenant
	// Add requires that the tenant does not exist yet.
	Add   bool
	Actor string
	Done  func(error)
}

func (in SetTenant) apply(c *Core) {
	name := in.Tenant.GetName()
	if in.Add && c.st.Tenant(name) != nil {
		c.reply(func() {
			in.Done(fmt.Errorf("%w: tenant %s already exists; change it with 'outbid tenant set'", state.ErrConflict, name))
		})
		return
	}
	if !proto.Equal(c.st.Tenant(name), in.Tenant) {
		c.emit(&outbidv1.Event{Kind: &outbidv1.Event_TenantChanged{TenantChanged: &outbidv1.TenantChanged{Tenant: in.Tenant, Actor: in.Actor}}})
	}
	c.reply(func() { in.Done(nil) })
}

// A RemoveTenant removes the settings of a tenant whose sweeps have all ended.
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

// checkDeadline rejects a deadline that has passed.
func (c *Core) checkDeadline(s *outbidv1.SweepSpec) error {
	if _, at, _ := terms.ParseDeadline(s.GetDeadline()); !at.IsZero() && !at.After(c.now) {
		return fmt.Errorf("%w: deadline: %s has passed; it is %s", state.ErrInvalid, s.GetDeadline(), c.now.UTC().Format(time.RFC3339))
	}
	return nil
}

// mayBegin returns why a tenant may not start a sweep with this spec now, or nil if it may.
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

// fitsQuota returns an error if no trial of a spec could ever run within a quota.
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
		return nil // the types that the trial would run on are not known
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

// typesFor returns the types of device that a demand accepts: those that it names, or those of the cluster and of the
// quota.
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

// tenantsInView returns the tenants as policies see them. A tenant whose device-hours are used up may hold no
// devices.
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

// meter returns the tenants whose device-hours are used up, and when that changes next at the current use.
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

// meterOne reports whether a tenant's device-hours are used up, and when that changes at the current use, or zero for
// never.
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

// takeBackSpent revokes leases of tenants beyond their quotas and device-hours.
func (c *Core) takeBackSpent() {
	c.spent, c.metered = c.meter()
	c.takeBack()
}

// holding is what a tenant with a quota holds, without leases that are already being revoked.
type holding struct {
	policy.Tenant
	held   map[string]int
	all    int
	leases []*state.Lease
}

// takeBack revokes leases of tenants beyond their quotas, newest first.
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

// count adds the leases of a sweep's trials.
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

// takeBackOf revokes a tenant's leases beyond its quota.
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

// helps reports whether a lease holds a type of device that exceeds the quota.
func (c *Core) helps(q cluster.Quota, held map[string]int, all int, l *state.Lease) bool {
	return q.All >= 0 && all > q.All || slices.ContainsFunc(c.typesOf(l), func(kind string) bool {
		most, named := q.Of[kind]
		return named && held[kind] > most
	})
}

// quotaBook counts what tenants hold and are granted. It is valid for one moment, because it looks up a tenant's
// holdings once.
type quotaBook struct {
	c *Core
	// of holds the counts of the tenants looked up so far, or nil for a tenant without limits.
	of map[string]*quotaCount
}

// quotaCount is a tenant's quota and its holdings.
type quotaCount struct {
	quota cluster.Quota
	held  map[string]int
	all   int
}

func (c *Core) quotaBook() quotaBook { return quotaBook{c: c, of: map[string]*quotaCount{}} }

// find returns a tenant's quota and holdings, or nil if the tenant is not limited.
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

// add counts a grant and returns true, or returns false if its tenant would exceed its quota.
func (b *quotaBook) add(s *state.Sweep, e *outbidv1.LeaseGranted) bool {
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

// beyondQuota reports whether a grant would exceed the quota of its tenant.
func (c *Core) beyondQuota(s *state.Sweep, e *outbidv1.LeaseGranted) bool {
	book := c.quotaBook()
	return !book.add(s, e)
}

// SetTenant adds or changes a tenant.
func (l *Loop) SetTenant(ctx context.Context, t *outbidv1.Tenant, add bool, actor string) error {
	_, err := do(ctx, l, func(done func(struct{}, error)) Input {
		return SetTenant{Tenant: proto.CloneOf(t), Add: add, Actor: actor, Done: func(err error) { done(struct{}{}, err) }}
	})
	return err
}

// RemoveTenant removes the settings of a tenant.
func (l *Loop) RemoveTenant(ctx context.Context, tenant, actor string) error {
	_, err := do(ctx, l, func(done func(struct{}, error)) Input {
		return RemoveTenant{Tenant: tenant, Actor: actor, Done: func(err error) { done(struct{}{}, err) }}
	})
	return err
}

// TenantStates returns the tenants that were added or have sweeps, by name.
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

// Tenant returns the settings of a tenant, or nil if it was not added.
func (l *Loop) Tenant(name string) *outbidv1.Tenant { return l.view.Load().Tenant(name) }

// MemberOf returns the tenants that name a member.
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
