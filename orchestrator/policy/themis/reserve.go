package themis

import (
	"time"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/forking"
)

// waitDivisor is the divisor of a lease that gives how long a trial waits for all devices of its forks; after that it
// gets those that are free.
const waitDivisor = 4

// claimReserved grants, in the plan, reserved devices that are free now, and holds back the others. It returns the
// gangs that trials have or will have by that, the reservations that remain, and when the first trial has waited long
// enough for the last devices of its forks, or zero. A reservation lasts for a lease.
func claimReserved(v *policy.View, plan *policy.Planner, open []policy.Reservation, lease time.Duration, until terms, reason string) (
	secured map[*policy.Job][]cluster.Gang, still []policy.Reservation, patience time.Time,
) {
	if len(open) == 0 {
		return nil, nil, patience
	}
	secured = map[*policy.Job][]cluster.Gang{}
	taken := func(j *policy.Job) bool { return secured[j] != nil }
	apps := map[string]*policy.App{}
	for _, a := range v.Apps {
		apps[a.ID] = a
	}
	for len(open) > 0 {
		of := firstGroup(open)
		open = open[len(of):]
		a, made := apps[of[0].Job.App], of[0].Made
		if a == nil || a.Paused || v.Now.Sub(made) >= lease {
			continue
		}
		of, gangs := presentReservations(v, of)
		if len(of) == 0 {
			continue
		}
		j := of[0].Claimant(v, a, gangs[0], taken)
		if j == nil {
			continue
		}
		if len(of) > 1 && j.MayFork() {
			waits := made.Add(lease / waitDivisor)
			plan.UntilBy(until.slot)
			claim, coming := plan.ClaimForks(j, gangs, v.Now.Before(waits), reason, divider(v))
			plan.UntilBy(until.lease)
			if claim == policy.Held {
				still = append(still, of...)
				if waits.After(v.Now) {
					patience = earlier(patience, waits)
				}
			}
			if claim != policy.Lapsed {
				secured[j] = coming
			}
			continue
		}
		switch plan.Claim(j, gangs[0], reason) {
		case policy.Fulfilled:
			secured[j] = gangs[:1]
		case policy.Held:
			secured[j] = gangs[:1]
			still = append(still, of[0])
		}
	}
	return secured, still, patience
}

// fulfilled is the reason for granting reserved devices: an auction or, with the option grow, also growth.
func (s *settings) fulfilled() string {
	if s.grow > 0 {
		return "reserved for it, and free now"
	}
	return "won in an auction, and free now"
}

// firstGroup returns the first reservations of a list that were made for the forks of one trial, or the first one
// alone.
func firstGroup(open []policy.Reservation) []policy.Reservation {
	n := 1
	for n < len(open) && open[n].Job == open[0].Job && open[n].Made.Equal(open[0].Made) {
		n++
	}
	return open[:n:n]
}

// presentReservations returns the reservations whose nodes exist and accept trials, and their gangs.
func presentReservations(v *policy.View, of []policy.Reservation) (there []policy.Reservation, gangs []cluster.Gang) {
	for _, r := range of {
		if g, ok := r.Nodes.In(v); ok && !v.Draining(g) {
			there, gangs = append(there, r), append(gangs, g)
		}
	}
	return there, gangs
}

// divider divides the remaining steps of a trial over its forks.
func divider(v *policy.View) policy.Divider {
	return func(g policy.Grant, gangs []cluster.Gang) []policy.Grant { return forking.Grants(v, g, gangs, 0) }
}
