package tenants

import (
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// InView returns the tenants as policies see them. A tenant whose device-hours are used up may hold no
// devices.
func InView(list []*outbidv1.Tenant, spent map[string]bool) []policy.Tenant {
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

// Book counts what tenants hold and are granted. It is valid for one moment, because it looks up a tenant's
// holdings once.
type Book struct {
	tn *Tenants
	// of holds the counts of the tenants looked up so far, or nil for a tenant without limits.
	of map[string]*quotaCount
}

// quotaCount is a tenant's quota and its holdings.
type quotaCount struct {
	quota cluster.Quota
	held  map[string]int
	all   int
}

// NewBook returns a book of the current moment.
func (tn *Tenants) NewBook() Book { return Book{tn: tn, of: map[string]*quotaCount{}} }

// find returns a tenant's quota and holdings, or nil if the tenant is not limited.
func (b *Book) find(name string) *quotaCount {
	if n, known := b.of[name]; known {
		return n
	}
	b.of[name] = nil
	t := b.tn.st.Tenant(name)
	metered := t.GetLimits() != nil && t.GetLimits().DeviceHours != nil
	if t == nil || t.GetQuota() == nil && !metered {
		return nil
	}
	use := b.tn.st.TenantUse(name, b.tn.core.Now())
	n := &quotaCount{held: use.Held}
	for _, devices := range use.Held {
		n.all += devices
	}
	spent := false
	if metered {
		spent, _ = b.tn.meterOne(t, use)
	}
	n.quota = quotaOf(t, spent)
	b.of[name] = n
	return n
}

// Add counts a grant and returns true, or returns false if its tenant would exceed its quota.
func (b *Book) Add(s *state.Sweep, e *outbidv1.LeaseGranted) bool {
	n := b.find(state.TenantOf(s.Spec))
	if n == nil {
		return true
	}
	count := func(by int) {
		for _, p := range state.PlacesOf(e.GetPlaces()) {
			for _, kind := range b.tn.st.TypesAt(p) {
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

// BeyondQuota reports whether a grant would exceed the quota of its tenant.
func (tn *Tenants) BeyondQuota(s *state.Sweep, e *outbidv1.LeaseGranted) bool {
	book := tn.NewBook()
	return !book.Add(s, e)
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
func (tn *Tenants) helps(q cluster.Quota, held map[string]int, all int, l *state.Lease) bool {
	return q.All >= 0 && all > q.All || slices.ContainsFunc(tn.typesOf(l), func(kind string) bool {
		most, named := q.Of[kind]
		return named && held[kind] > most
	})
}
