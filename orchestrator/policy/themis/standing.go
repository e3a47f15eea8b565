package themis

import (
	"cmp"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/bidder"
	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/policy"
)

// supply is what a round can distribute: the trials with expired leases, the trials between two fork slots, and the
// gangs secured by reservations.
type supply struct {
	expired   []*policy.Job
	isResting map[*policy.Job]bool
	isExpired map[*policy.Job]bool
	secured   map[*policy.Job][]cluster.Gang
}

func newSupply(expired, rests []*policy.Job, secured map[*policy.Job][]cluster.Gang) *supply {
	s := &supply{expired: expired, secured: secured, isExpired: make(map[*policy.Job]bool, len(expired)), isResting: make(map[*policy.Job]bool, len(rests))}
	for _, j := range expired {
		s.isExpired[j] = true
	}
	for _, j := range rests {
		s.isResting[j] = true
	}
	return s
}

// canTakeGang reports whether a trial could take a gang.
func (s *supply) canTakeGang(j *policy.Job) bool {
	if j.Running() && !s.isResting[j] {
		return s.isExpired[j]
	}
	return s.secured[j] == nil
}

// holdings returns the devices that a trial keeps or has secured, and those that it holds on an expired lease.
func (s *supply) holdings(v *policy.View, j *policy.Job) (held, lost bidder.Holding) {
	switch g := s.secured[j]; {
	case g != nil:
		held = v.Holding(j, g...)
	case j.Running() && (s.isExpired[j] || s.isResting[j]):
		lost = v.Holding(j, j.Gangs...)
	case j.Running() && !j.Ending:
		held = v.Holding(j, j.Gangs...)
	}
	return held, lost
}

// holdsDevices reports whether a sweep holds something. Devices on expired leases and secured ones count.
func (s *supply) holdsDevices(a *policy.App) bool {
	return slices.ContainsFunc(a.Jobs, func(j *policy.Job) bool { return j.Running() || s.secured[j] != nil })
}

// hasTrade reports whether there are both devices on offer and a sweep that could use some.
func (s *supply) hasTrade(v *policy.View) bool {
	if len(s.expired) > 0 {
		return true
	}
	return v.Free.FreeDevices() > 0 && slices.ContainsFunc(v.Apps, func(a *policy.App) bool {
		return !a.Paused && (slices.ContainsFunc(a.Jobs, s.canTakeGang) || a.Forks > 1 && slices.ContainsFunc(a.Jobs, s.isUnforked))
	})
}

// isUnforked reports whether a trial that keeps its devices is trained by one process and could be forked.
func (s *supply) isUnforked(j *policy.Job) bool {
	return j.MayFork() && j.Running() && !j.Forked && !j.Ending && !s.isExpired[j] && s.secured[j] == nil && len(j.Gangs) == 1
}

// The state of a sweep before the auction.
type sweepState struct {
	app *policy.App
	// open lists the trials that could take a gang, those with the most work left first. keeps is the number of devices
	// of the others.
	open  []*policy.Job
	keeps int
}

// sweepStates returns the states of the sweeps that are not paused.
func sweepStates(v *policy.View, s *supply) []sweepState {
	all := make([]sweepState, 0, len(v.Apps))
	for _, a := range v.Apps {
		if a.Paused {
			continue
		}
		one := sweepState{app: a}
		for _, j := range a.Jobs {
			switch g := s.secured[j]; {
			case g != nil:
				for _, gang := range g {
					one.keeps += gang.Size()
				}
			case s.canTakeGang(j):
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
