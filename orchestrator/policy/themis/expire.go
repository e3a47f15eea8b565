package themis

import (
	"hash/fnv"
	"slices"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/policy"
)

// expiredTrials lists the trials whose leases have expired, and returns the next end of a term after now, or zero if
// unknown. Before next, the previously known end, the list is empty. It leaves out trials that must leave or may not be
// moved.
func expiredTrials(v *policy.View, next time.Time) (expired []*policy.Job, ends time.Time) {
	if !next.IsZero() && v.Now.Before(next) {
		return nil, next
	}
	for _, a := range v.Apps {
		for _, j := range a.Jobs {
			switch {
			case !j.Running() || j.Ending || a.Paused || j.Forked && !j.TermEnd.After(v.Now) || v.Draining(j.Held()):
			case j.TermEnd.After(v.Now):
				ends = earlier(ends, j.TermEnd)
			default:
				expired = append(expired, j)
			}
		}
	}
	return expired, ends
}

// betweenSlots lists the trials between fork slots, whose forks are saving or being averaged. They continue where the
// round places them, and the devices that they still hold are on offer: betweenSlots adds these to the plan, and ends
// slots that are still running.
func betweenSlots(v *policy.View, plan *policy.Planner) (rests []*policy.Job) {
	for _, a := range v.Apps {
		if a.Forks <= 1 || a.Paused {
			continue
		}
		for _, j := range a.Jobs {
			switch {
			case j.Consolidating && !j.Running():
			case !j.Running() || !j.Forked || j.TermEnd.IsZero() || j.TermEnd.After(v.Now):
				continue
			case j.Ending:
				plan.Reclaim(j)
			default:
				plan.Evict(j, "the slot of its forks is over")
			}
			rests = append(rests, j)
		}
	}
	return rests
}

// withStays adds reservations for trials whose forks have done their shares before their terms end: each trial
// continues where its first fork was.
func withStays(v *policy.View, open []policy.Reservation) []policy.Reservation {
	for _, a := range v.Apps {
		if a.Forks <= 1 || a.Paused {
			continue
		}
		for _, j := range a.Jobs {
			if !j.Running() || !j.Forked || !j.Ending || !j.TermEnd.After(v.Now) {
				continue
			}
			if !slices.ContainsFunc(open, func(r policy.Reservation) bool { return r.Job == j.Name() }) {
				open = append(open, policy.Reservation{Job: j.Name(), Made: v.Now, Nodes: v.Named(j.Gang())})
			}
		}
	}
	return open
}

// earlier returns the earlier of two times, where zero means never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// terms holds functions that return the ends of leases and of fork slots for a gang.
type terms struct{ lease, slot func(cluster.Gang) time.Time }

// terms returns the terms of a round. A slot lasts as long as a lease if it is 0 or longer than one.
func (s *settings) terms(v *policy.View, slot time.Duration) terms {
	lease := func(g cluster.Gang) time.Time { return s.termEnd(v.Now, v.Nodes[g[0].Node].Name) }
	if slot == 0 {
		return terms{lease, lease}
	}
	return terms{lease, func(g cluster.Gang) time.Time {
		if end := v.Now.Add(slot); end.Before(lease(g)) {
			return end
		}
		return lease(g)
	}}
}

// termEnd returns the end of a lease that begins now. Ends lie on a grid which, with stagger, is shifted for each node.
func (s *settings) termEnd(now time.Time, node string) time.Time {
	grid := max(time.Duration(s.Grid*float64(s.lease)), time.Millisecond)
	shift := time.Duration(0)
	if s.Stagger {
		h := fnv.New64a()
		h.Write([]byte(node))
		const parts = 1 << 16
		shift = grid / parts * time.Duration(h.Sum64()%parts)
	}
	least := now.Add(s.lease - grid/2)
	end := least.Add(-shift).Truncate(grid).Add(shift)
	if end.Before(least) {
		end = end.Add(grid)
	}
	return end
}
