package control

import "slices"

// Tenants lists those who own sweeps.
func (l *Loop) Tenants() []string {
	l.mu.RLock()
	defer l.mu.RUnlock()
	seen := map[string]bool{}
	for _, s := range l.core.st.Sweeps {
		seen[s.Spec.GetTenant()] = true
	}
	return sortedKeys(seen)
}

// Blobs says which functions sweeps use, by SHA-256, and of which tenants those are.
func (l *Loop) Blobs() map[string][]string {
	l.mu.RLock()
	defer l.mu.RUnlock()
	used := map[string][]string{}
	for _, s := range l.core.st.Sweeps {
		sha, tenant := s.Spec.GetFunction().GetBlob(), s.Spec.GetTenant()
		if sha != "" && !slices.Contains(used[sha], tenant) {
			used[sha] = append(used[sha], tenant)
		}
	}
	return used
}
