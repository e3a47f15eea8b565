package rounds

import (
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/policy"
)

// within grants, in the middle of a round, devices that have become free to the jobs that they are reserved for, and
// reports whether the round continues. A job that lost its devices without having ended gets them again.
func (p *Policy) within(v *policy.View) (decided policy.Plan, on bool) {
	plan := policy.Extend(v)
	defer func() {
		decided = plan.Plan("the round goes on", "")
		decided.Next = p.next()
	}()
	waits := slices.ContainsFunc(p.s.Assignments, assignment.waits)
	if v.Free.FreeDevices() == p.s.Free && !waits {
		return decided, true
	}
	on = p.whole
	for i := range p.s.Assignments {
		s := &p.s.Assignments[i]
		if s.Left || waits && s.Given {
			on = on || !s.Left
			continue
		}
		g, ok := s.Gang.In(v)
		if waits && (!ok || !v.Free.IsFree(g)) {
			on = true // not free yet
			continue
		}
		j := s.find(v)
		if j == nil || j.App.Paused {
			if v.Now.Equal(p.s.Begun) && s.Given && !p.whole {
				return decided, false
			}
			s.Left, s.To = true, p.clock(v.Now)
			continue
		}
		on = true
		if !ok || !suits(v, j, g) || !plan.PlaceOn(j, g, p.reason(s.Type)) {
			continue
		}
		if !s.Given {
			s.Given, s.From = true, p.clock(v.Now)
		}
	}
	p.s.Free = v.Free.FreeDevices()
	return decided, on
}

// suits reports whether a waiting job may have a gang, which may be a remainder of one, or older than its demand.
func suits(v *policy.View, j *policy.Job, g cluster.Gang) bool {
	n, kind := g.Size(), cluster.TypeOf(v.Nodes, g)
	return j.Waiting() && n >= max(1, j.Demand.Min) && n <= max(1, j.Demand.Max) &&
		(kind == "" && j.Demand.Mixed || j.Demand.Accepts(kind)) && (len(g) == 1 || j.Demand.MultiNode)
}

// waits reports whether an assignment has not been given yet.
func (s assignment) waits() bool { return !s.Given && !s.Left }

// find returns the assignment's job, or nil if it is gone.
func (s *assignment) find(v *policy.View) *policy.Job {
	if s.hint >= len(v.Apps) || v.Apps[s.hint].Order != s.Who.Order {
		i, found := slices.BinarySearchFunc(v.Apps, s.Who.Order, func(a *policy.App, order int) int { return a.Order - order })
		if !found {
			return nil
		}
		s.hint = i
	}
	a := v.Apps[s.hint]
	if a.ID != s.Who.App {
		return nil
	}
	i, found := slices.BinarySearchFunc(a.Jobs, s.Who.Trial, func(j *policy.Job, n int32) int { return int(j.Trial) - int(n) })
	if !found {
		return nil
	}
	return a.Jobs[i]
}
