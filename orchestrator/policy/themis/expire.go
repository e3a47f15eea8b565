package themis

import (
	"hash/fnv"
	"slices"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/policy"
)

// expire lists the jobs on leases that are up, if there can be any: not before the next end of a term. ends is the next
// end after now; zero if that is not known. Leases of jobs that must leave, or may not be moved, do not count.
func expire(v *policy.View, next time.Time) (expired []*policy.Job, ends time.Time) {
	if !next.IsZero() && v.Now.Before(next) {
		return nil, next
	}
	for _, a := range v.Apps {
		for _, j := range a.Jobs {
			switch {
			case !j.Running() || j.Ending || a.Paused || j.Forked && !j.TermEnd.After(v.Now) || v.Draining(j.Held()):
			case j.TermEnd.After(v.Now):
				ends = sooner(ends, j.TermEnd)
			default:
				expired = append(expired, j)
			}
		}
	}
	return expired, ends
}

// resting lists the jobs whose slot of forks is over: their forks save, or what they saved is put together. They go on where the round
// has a place for them, and what they still hold is on offer. It is planned with here; a slot that nobody has ended yet ends.
func resting(v *policy.View, plan *policy.Planner) (rests []*policy.Job) {
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

// stays are reservations of jobs whose forks have done their shares before their terms end: each goes on where its first fork was.
func stays(v *policy.View, open []policy.Reservation) []policy.Reservation {
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

// sooner is the earlier of two times; zero is never.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// terms say how the ends of what a round grants follow from its gangs: of leases, and of slots of forks.
type terms struct{ lease, slot func(cluster.Gang) time.Time }

// terms of a round; a slot is a lease if it is 0 or longer than one.
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

// termEnd is when a lease that begins now ends: on a grid which, with stagger, lies elsewhere for each machine.
func (s *settings) termEnd(now time.Time, node string) time.Time {
	grid := max(time.Duration(s.grid*float64(s.lease)), time.Millisecond)
	shift := time.Duration(0)
	if s.stagger {
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
