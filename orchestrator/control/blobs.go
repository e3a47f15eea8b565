package control

import (
	"maps"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/state"
)

// Tenants lists the tenants that have sweeps.
func (a *Access) Tenants() []string {
	seen := map[string]bool{}
	a.views.load().each(func(s *state.Sweep) { seen[s.Spec.GetTenant()] = true })
	return slices.Sorted(maps.Keys(seen))
}

// Blobs returns the functions that sweeps use, by SHA-256, with the tenants of those sweeps.
func (a *Access) Blobs() map[string][]string {
	used := map[string][]string{}
	a.views.load().each(func(s *state.Sweep) {
		sha, tenant := s.Spec.GetFunction().GetBlob(), s.Spec.GetTenant()
		if sha != "" && !slices.Contains(used[sha], tenant) {
			used[sha] = append(used[sha], tenant)
		}
	})
	return used
}
