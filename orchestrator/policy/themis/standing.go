package themis

import (
	"cmp"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/agent"
	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/policy"
)

// supply is what a round has to give: the jobs on leases that are up, those that rest between two slots of forks, and the gangs
// that were secured by reservations and are nobody else's.
type supply struct {
	expired []*policy.Job
	rests   map[*policy.Job]bool
	up      map[*policy.Job]bool
	secured map[*policy.Job][]cluster.Gang
}

func newSupply(expired, rests []*policy.Job, secured map[*policy.Job][]cluster.Gang) *supply {
	s := &supply{expired: expired, secured: secured, up: make(map[*policy.Job]bool, len(expired)), rests: make(map[*policy.Job]bool, len(rests))}
	for _, j := range expired {
		s.up[j] = true
	}
	for _, j := range rests {
		s.rests[j] = true
	}
	return s
}

// open says whether a job could take a gang.
func (s *supply) open(j *policy.Job) bool {
	if j.Running() && !s.rests[j] {
		return s.up[j]
	}
	return s.secured[j] == nil
}

// holdings are what a job keeps, or has secured, and what it holds on a lease that is up.
func (s *supply) holdings(v *policy.View, j *policy.Job) (held, lost agent.Holding) {
	switch g := s.secured[j]; {
	case g != nil:
		held = v.Holding(j, g...)
	case j.Running() && (s.up[j] || s.rests[j]):
		lost = v.Holding(j, j.Gangs...)
	case j.Running() && !j.Ending:
		held = v.Holding(j, j.Gangs...)
	}
	return held, lost
}

// holds says whether an app holds something: devices on leases that are up, and secured ones, count.
func (s *supply) holds(a *policy.App) bool {
	return slices.ContainsFunc(a.Jobs, func(j *policy.Job) bool { return j.Running() || s.secured[j] != nil })
}

// tradable says whether something is on offer and somebody wants something.
func (s *supply) tradable(v *policy.View) bool {
	if len(s.expired) > 0 {
		return true
	}
	return v.Free.FreeDevices() > 0 && slices.ContainsFunc(v.Apps, func(a *policy.App) bool {
		return !a.Paused && (slices.ContainsFunc(a.Jobs, s.open) || a.Forks > 1 && slices.ContainsFunc(a.Jobs, s.alone))
	})
}

// alone says whether a job that keeps its devices is trained by one process, and might by several.
func (s *supply) alone(j *policy.Job) bool {
	return j.MayFork() && j.Running() && !j.Forked && !j.Ending && !s.up[j] && s.secured[j] == nil && len(j.Gangs) == 1
}

// standing is how an app stands before the auction.
type standing struct {
	app *policy.App
	// open jobs could take a gang, those with most left to do first; keeps is the devices of the others.
	open  []*policy.Job
	keeps int
}

// standings of the apps that are not paused.
func standings(v *policy.View, s *supply) []standing {
	all := make([]standing, 0, len(v.Apps))
	for _, a := range v.Apps {
		if a.Paused {
			continue
		}
		one := standing{app: a}
		for _, j := range a.Jobs {
			switch g := s.secured[j]; {
			case g != nil:
				for _, gang := range g {
					one.keeps += gang.Size()
				}
			case s.open(j):
				one.open = append(one.open, j)
			case !j.Ending:
				one.keeps += j.Held().Size()
			}
		}
		left := make(map[*policy.Job]float64, len(one.open))
		for _, j := range one.open {
			left[j] = v.StepsLeft(j)
		}
		slices.SortStableFunc(one.open, func(x, y *policy.Job) int { return cmp.Compare(left[y], left[x]) })
		all = append(all, one)
	}
	return all
}
