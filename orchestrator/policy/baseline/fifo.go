// Package baseline holds the schedulers that others are measured against, each from its own paper's definition.
package baseline

import "github.com/outbid-dev/outbid/orchestrator/policy"

// FIFO grants devices in order of arrival of sweeps, and within a sweep of trials. A trial that does not fit is passed
// over, so that no device idles while anything fits it. Nothing is preempted.
type FIFO struct{ stateless }

// Name implements policy.Policy.
func (FIFO) Name() string { return "fifo" }

// Decide implements policy.Policy.
func (FIFO) Decide(v *policy.View) policy.Plan {
	const round = "first come, first served"
	p := policy.Extend(v)
	if p.Free().FreeDevices() == 0 {
		return p.Plan(round, "")
	}
	var unplaceable policy.Unplaceable
	for j := range v.Line() {
		if p.Free().FreeDevices() == 0 {
			break
		}
		if !unplaceable.Covers(j.Demand) && !p.Place(j, "first in line that fits") {
			unplaceable.Add(j.Demand)
		}
	}
	return p.Plan(round, "")
}

// stateless is the snapshot of a policy that remembers nothing.
type stateless struct{}

// Snapshot implements policy.Policy.
func (stateless) Snapshot() ([]byte, error) { return nil, nil }

// Restore implements policy.Policy.
func (stateless) Restore([]byte) error { return nil }
