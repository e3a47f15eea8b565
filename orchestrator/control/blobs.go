package control

import (
	"maps"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/state"
)

// Tenants lists the tenants that have sweeps.
func (l *Loop) Tenants() []string {
	seen := map[string]bool{}
	l.view.Load().each(func(s *state.Sweep) { seen[s.Spec.GetTenant()] = true })
	return slices.Sorted(maps.Keys(seen))
}

// Blobs returns the functions that sweeps use, by SHA-256, with the tenants of those sweeps.
func (l *Loop) Blobs() map[string][]string {
	used := map[string][]string{}
	l.view.Load().each(func(s *state.Sweep) {
		sha, tenant := s.Spec.GetFunction().GetBlob(), s.Spec.GetTenant()
		if sha != "" && !slices.Contains(used[sha], tenant) {
			used[sha] = append(used[sha], tenant)
		}
	})
	return used
}
