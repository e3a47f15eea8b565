package policy

import (
	"slices"
	"strings"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
)

// Tenant owns apps.
type Tenant struct {
	Name string
	// Weight relative to other tenants; 1 is usual.
	Weight float64
	// Quota bounds what the jobs of its apps hold together; its number in demands is the tenant's place in View.Tenants, from 1
	// on. The view's Free finds no place beyond it, so policies keep to it without a thought.
	Quota cluster.Quota
}

// Tenant of an app: one that nobody added weighs 1 and has no quota.
func (v *View) Tenant(a *App) Tenant {
	if i, ok := v.added(a.Tenant); ok {
		return v.Tenants[i]
	}
	return Tenant{Name: a.Tenant, Weight: 1, Quota: cluster.Quota{Owner: a.Tenant, All: -1}}
}

// added is where a tenant stands among those that somebody added.
func (v *View) added(name string) (at int, ok bool) {
	return slices.BinarySearchFunc(v.Tenants, name, func(t Tenant, name string) int { return strings.Compare(t.Name, name) })
}

// TenantWeight is what a tenant weighs: what an option of the policy's says (see Options.Weights), else what was set for the
// tenant, else 1.
func (v *View) TenantWeight(name string, option map[string]float64) float64 {
	if w, named := option[name]; named {
		return w
	}
	if i, ok := v.added(name); ok {
		return WeightOrOne(v.Tenants[i].Weight)
	}
	return 1
}

// HeldBy counts the devices that the jobs of a tenant's apps hold, by type.
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

// Bound has the view's Free keep to the tenants' quotas. Nothing may be taken of it yet.
func (v *View) Bound() {
	var quotas []cluster.Quota
	for _, t := range v.Tenants {
		quotas = append(quotas, t.Quota)
	}
	v.Free.SetQuotas(quotas)
}

// Empty is the capacity of the view's nodes on which nothing runs, bounded by the same quotas.
func (v *View) Empty() *cluster.Capacity {
	empty := View{Free: cluster.NewCapacity(v.Nodes), Tenants: v.Tenants}
	empty.Bound()
	return empty.Free
}

// QuotaOf is the number in demands of a tenant's quota; 0 for none.
func (v *View) QuotaOf(tenant string) int {
	for i, t := range v.Tenants {
		if t.Name == tenant && (t.Quota.All >= 0 || len(t.Quota.Of) > 0) {
			return i + 1
		}
	}
	return 0
}
