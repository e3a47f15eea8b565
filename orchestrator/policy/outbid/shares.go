package outbid

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/astraea/accounts"
	"github.com/outbid-dev/outbid/orchestrator/policy/themis"
)

// books holds the tenants' accounts as of the last decision.
type books struct {
	At      time.Time
	Tenants map[string]*accounts.Account
}

func newBooks() books { return books{Tenants: map[string]*accounts.Account{}} }

// update updates the accounts: the time that has passed, the tenants, and their demands. A configured tenant has an
// account before it has trials, so that it lends its share from the beginning.
func (b *books) update(v *policy.View, horizon float64) {
	seconds := 0.0
	if !b.At.IsZero() {
		seconds = max(0, v.Now.Sub(b.At).Seconds())
	}
	b.At = v.Now
	for _, a := range b.Tenants {
		a.Advance(seconds, false, horizon)
		a.Held, a.Demand, a.Active = 0, 0, 0
	}
	for i := range v.Tenants {
		b.account(v, v.Tenants[i].Name)
	}
	for _, app := range v.Apps {
		a := b.account(v, app.Tenant)
		for _, j := range app.Jobs {
			if j.Running() || j.Waiting() || j.Consolidating && !app.Paused {
				a.Active++
				a.Demand += float64(max(1, j.Demand.Min, j.Demand.Max))
			}
		}
	}
	accounts.Quotas(devicesOf(v), func(yield func(*accounts.Account) bool) {
		for _, name := range slices.Sorted(maps.Keys(b.Tenants)) {
			if !yield(b.Tenants[name]) {
				return
			}
		}
	})
}

// account returns a tenant's account with its current weight, and creates it if necessary.
func (b *books) account(v *policy.View, tenant string) *accounts.Account {
	a := b.Tenants[tenant]
	if a == nil {
		a = &accounts.Account{}
		b.Tenants[tenant] = a
	}
	a.Weight = v.TenantWeight(tenant, nil)
	return a
}

// recordHoldings records what tenants hold from now on. Devices of trials that must leave count until they are
// released.
func (b *books) recordHoldings(v *policy.View, plan policy.Plan) {
	for _, app := range v.Apps {
		for _, j := range app.Jobs {
			b.Tenants[app.Tenant].Held += float64(j.Held().Size())
		}
	}
	for i := range plan.Grants {
		g := &plan.Grants[i]
		b.Tenants[g.Job.App.Tenant].Held += float64(g.Gang.Size())
	}
}

// shared lists the tenants that have sweeps now, the one that has had the least of its share first.
type shared struct {
	tenants []*tenant
	number  map[string]int
	// floor is a fraction of each tenant's part of all devices by weight, where weights is the sum over all tenants.
	floor, devices, weights float64
	// lease is the length of a lease in seconds.
	lease float64
	// askAll means that all sweeps of a tenant are asked.
	askAll bool
}

type tenant struct {
	*accounts.Account

	name string
	rho  float64
}

// share orders the tenants that ask for or hold something.
func (b *books) share(v *policy.View, set *settings, lease time.Duration) *shared {
	s := &shared{number: map[string]int{}, floor: set.floor, lease: lease.Seconds(), askAll: set.AskAll}
	if !set.ByTenant {
		return s
	}
	for _, app := range v.Apps {
		if _, there := s.number[app.Tenant]; !there {
			s.number[app.Tenant] = 0
			a := b.Tenants[app.Tenant]
			s.tenants = append(s.tenants, &tenant{Account: a, name: app.Tenant, rho: a.Rho(0)})
			s.weights += a.Weight
		}
	}
	s.devices = float64(devicesOf(v))
	slices.SortStableFunc(s.tenants, func(x, y *tenant) int { return cmp.Compare(x.rho, y.rho) })
	for i, t := range s.tenants {
		s.number[t.name] = i
	}
	return s
}

// division makes tenants bid within their parts, or returns nil for one tenant.
func (s *shared) division() *themis.Division {
	if len(s.tenants) <= 1 {
		return nil
	}
	return &themis.Division{Groups: len(s.tenants), Of: func(a *policy.App) int { return s.number[a.Tenant] }, All: s.askAll, Parts: s.parts}
}

// parts divides the offered devices one by one: each goes to the tenant that will have had the least of its share at
// the end of a lease, among those that ask for more; tenants below their floor come first.
func (s *shared) parts(offered int, keeps []int) []int {
	parts := make([]int, len(s.tenants))
	for range offered {
		best, low, least := -1, false, math.Inf(1)
		for i, t := range s.tenants {
			has := float64(keeps[i] + parts[i])
			if has >= t.Demand {
				continue
			}
			below := has+1 <= s.floor*s.devices*t.Weight/s.weights
			if rho := t.After(s.lease, has+1); best < 0 || below && !low || below == low && rho < least {
				best, low, least = i, below, rho
			}
		}
		if best < 0 {
			break
		}
		parts[best]++
	}
	return parts
}

// explain adds to the plan's reasons how much of its share each tenant has had.
func (s *shared) explain(plan *policy.Plan) {
	if len(s.tenants) <= 1 {
		return
	}
	for i := range plan.Grants {
		g := &plan.Grants[i]
		t := s.tenants[s.number[g.Job.App.Tenant]]
		g.Reason += fmt.Sprintf("; tenant %s has had %.3g of its share", t.name, t.rho)
	}
	if plan.Reason == "" {
		return
	}
	const most = 8
	var texts []string
	for _, t := range s.tenants[:min(most, len(s.tenants))] {
		texts = append(texts, fmt.Sprintf("%s %.3g", t.name, t.rho))
	}
	plan.Reason += "; of their shares tenants have had: " + strings.Join(texts, ", ")
	if n := len(s.tenants) - most; n > 0 {
		plan.Reason += fmt.Sprintf(", and %d others more", n)
	}
}

// devicesByWeight returns how many devices each tenant has by weight among those that have sweeps now.
func devicesByWeight(v *policy.View) map[string]float64 {
	parts, weights, devices := map[string]float64{}, 0.0, float64(devicesOf(v))
	for _, a := range v.Apps {
		if _, there := parts[a.Tenant]; !there {
			parts[a.Tenant] = v.TenantWeight(a.Tenant, nil)
			weights += parts[a.Tenant]
		}
	}
	for name := range parts {
		parts[name] *= devices / weights
	}
	return parts
}

// devicesOf counts the devices of all nodes.
func devicesOf(v *policy.View) int {
	n := 0
	for i := range v.Nodes {
		n += len(v.Nodes[i].Devices)
	}
	return n
}
