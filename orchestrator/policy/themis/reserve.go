package themis

import (
	"time"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/policy"
)

// fulfil grants, in the plan, devices that were reserved for jobs and are free now, and holds back the others. It returns
// the gangs that jobs have or will have by that, and the reservations that still stand. One lasts for a lease.
func fulfil(v *policy.View, plan *policy.Planner, open []policy.Reservation, lease time.Duration) (
	secured map[*policy.Job]cluster.Gang, still []policy.Reservation,
) {
	if len(open) == 0 {
		return nil, nil
	}
	secured = map[*policy.Job]cluster.Gang{}
	taken := func(j *policy.Job) bool { return secured[j] != nil }
	apps := map[string]*policy.App{}
	for _, a := range v.Apps {
		apps[a.ID] = a
	}
	for _, r := range open {
		a := apps[r.Job.App]
		if a == nil || a.Paused || v.Now.Sub(r.Made) >= lease {
			continue
		}
		g, ok := r.Nodes.In(v)
		if !ok || v.Draining(g) {
			continue
		}
		j := r.Claimant(v, a, g, taken)
		if j == nil {
			continue
		}
		switch plan.Claim(j, g, "won in an auction, and free now") {
		case policy.Fulfilled:
			secured[j] = g
		case policy.Held:
			secured[j] = g
			still = append(still, r)
		}
	}
	return secured, still
}
