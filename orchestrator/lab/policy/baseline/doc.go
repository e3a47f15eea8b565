// Package baseline holds well-known schedulers that papers compare with and the product does not offer, each as defined
// in its paper. Those that it offers are in package policy/baseline.
package baseline

// stateless is embedded by policies without state.
type stateless struct{}

// Snapshot implements policy.Policy.
func (stateless) Snapshot() ([]byte, error) { return nil, nil }

// Restore implements policy.Policy.
func (stateless) Restore([]byte) error { return nil }
