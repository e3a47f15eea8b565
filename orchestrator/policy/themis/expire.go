package themis

import (
	"hash/fnv"
	"time"

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
			case !j.Running() || j.Ending || a.Paused || v.Draining(j.Gang()):
			case j.TermEnd.After(v.Now):
				ends = sooner(ends, j.TermEnd)
			default:
				expired = append(expired, j)
			}
		}
	}
	return expired, ends
}

// sooner is the earlier of two times; zero is never.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
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
