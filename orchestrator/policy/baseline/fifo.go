// Package baseline holds the schedulers that others are measured against, each from its own paper's definition.
package baseline

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/policy"
)

// FIFO grants devices in order of arrival of sweeps, and within a sweep of trials. A trial that does not fit is passed
// over, so that no device idles while anything fits it. Nothing is preempted.
type FIFO struct{ stateless }

// Name implements policy.Policy.
func (FIFO) Name() string { return "fifo" }

// Decide implements policy.Policy.
func (FIFO) Decide(v *policy.View) policy.Plan {
	waiting := waitingJobs(v)
	slices.SortStableFunc(waiting, func(a, b int) int {
		return cmp.Or(cmp.Compare(v.Jobs[a].App, v.Jobs[b].App), v.Jobs[a].Queued.Compare(v.Jobs[b].Queued))
	})
	plan := policy.Plan{Reason: "first come, first served"}
	free := v.Capacity()
	for _, job := range waiting {
		j := &v.Jobs[job]
		place, ok := free.Place(j.Demand)
		if !ok {
			continue
		}
		free.Take(place, j.Demand)
		plan.Grants = append(plan.Grants, policy.Grant{
			Job: job, Node: place.Node, Devices: place.Devices,
			Reason: fmt.Sprintf("first in line that fits; waited %s", v.Now.Sub(j.Queued).Round(1e6)),
		})
	}
	return plan
}

// waitingJobs are the jobs that want devices and hold none.
func waitingJobs(v *policy.View) []int {
	var waiting []int
	for i := range v.Jobs {
		if !v.Jobs[i].Running() && !v.Jobs[i].Ending {
			waiting = append(waiting, i)
		}
	}
	return waiting
}

// stateless is the snapshot of a policy that remembers nothing.
type stateless struct{}

// Snapshot implements policy.Policy.
func (stateless) Snapshot() ([]byte, error) { return nil, nil }

// Restore implements policy.Policy.
func (stateless) Restore([]byte) error { return nil }
