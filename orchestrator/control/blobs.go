package control

import (
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/state"
)

// Tenants lists those who own sweeps.
func (l *Loop) Tenants() []string {
	seen := map[string]bool{}
	l.view.Load().each(func(s *state.Sweep) { seen[s.Spec.GetTenant()] = true })
	return sortedKeys(seen)
}

// Blobs says which functions sweeps use, by SHA-256, and of which tenants those are.
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
