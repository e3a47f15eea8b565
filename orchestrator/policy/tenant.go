package policy

import (
	"slices"
	"strings"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
)

// Tenant owns sweeps.
type Tenant struct {
	Name string
	// Weight is relative to other tenants, usually 1.
	Weight float64
	// Quota bounds the total holdings of the trials of its sweeps. Demands refer to it by the tenant's position in
	// View.Tenants, counted from 1. The view's Free finds no place beyond the quota, so policies need not check it.
	Quota cluster.Quota
}

// Tenant returns the tenant of a sweep. A tenant that was not configured has weight 1 and no quota.
func (v *View) Tenant(a *App) Tenant {
	if i, ok := v.findTenant(a.Tenant); ok {
		return v.Tenants[i]
	}
	return Tenant{Name: a.Tenant, Weight: 1, Quota: cluster.Quota{Owner: a.Tenant, All: -1}}
}

// findTenant returns the index of a configured tenant.
func (v *View) findTenant(name string) (at int, ok bool) {
	return slices.BinarySearchFunc(v.Tenants, name, func(t Tenant, name string) int { return strings.Compare(t.Name, name) })
}

// TenantWeight returns a tenant's weight: from the policy's option (see Options.Weights), else as configured for the
// tenant, else 1.
func (v *View) TenantWeight(name string, option map[string]float64) float64 {
	if w, named := option[name]; named {
		return w
	}
	if i, ok := v.findTenant(name); ok {
		return WeightOrOne(v.Tenants[i].Weight)
	}
	return 1
}

// HeldBy counts the devices held by the trials of a tenant's sweeps, by type.
func (v *View) HeldBy(tenant string) map[string]int {
	held := map[string]int{}
	for _, a := range v.Apps {
		if a.Tenant != tenant {
			continue
		}
		for _, j := range a.Jobs {
			for _, p := range j.Held() {
				for _, d := range p.Devices {
					held[v.Nodes[p.Node].Devices[d].Type]++
				}
			}
		}
	}
	return held
}

// Bound applies the tenants' quotas to the view's Free, from which nothing may have been taken yet.
func (v *View) Bound() {
	var quotas []cluster.Quota
	for _, t := range v.Tenants {
		quotas = append(quotas, t.Quota)
	}
	v.Free.SetQuotas(quotas)
}

// Empty returns the capacity of the view's nodes without any running trials, with the same quotas.
func (v *View) Empty() *cluster.Capacity {
	empty := View{Free: cluster.NewCapacity(v.Nodes), Tenants: v.Tenants}
	empty.Bound()
	return empty.Free
}

// QuotaOf returns the number of a tenant's quota in demands, or 0 if it has none.
func (v *View) QuotaOf(tenant string) int {
	for i, t := range v.Tenants {
		if t.Name == tenant && (t.Quota.All >= 0 || len(t.Quota.Of) > 0) {
			return i + 1
		}
	}
	return 0
}
