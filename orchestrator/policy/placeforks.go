package policy

import (
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
)

// MayFork reports whether a job may be trained by several forks, each with a gang on its own node.
func (j *Job) MayFork() bool { return j.Forks > 1 }

// Divider splits one grant into the grants of a fork slot, one for each gang.
type Divider func(Grant, []cluster.Gang) []Grant

// PlaceForks gives a job several gangs, one for each fork. They are granted now, split by divide, if the job waits and
// every device is free now; otherwise all are reserved for it. A running job is revoked so that it can restart as
// forks. PlaceForks fails if a gang is not free in the plan or the plan has already decided where the job runs.
func (p *Planner) PlaceForks(j *Job, gangs []cluster.Gang, reason string, divide Divider) bool {
	try := p.Statement()
	if j.Running() && !j.Ending {
		p.revokeForForks(j)
	}
	if j.App.Paused || !p.canPlace(j) || !p.free.TakeAll(gangs, j.Demand) {
		try.Discard()
		return false
	}
	try.Commit()
	if j.Waiting() && !slices.ContainsFunc(gangs, func(g cluster.Gang) bool { return p.pending.blocks(g, j.Demand) }) {
		p.decide(j, granted)
		p.plan.Grants = append(p.plan.Grants, divide(Grant{Job: j, Gang: gangs[0], Reason: reason, TermEnd: p.termEnd(gangs[0])}, gangs)...)
		return true
	}
	p.decide(j, reserved)
	for _, g := range gangs {
		p.waivePending(g, j.Demand)
		p.reserved = append(p.reserved, Reserved{Job: j, Gang: g})
	}
	return true
}

// revokeForForks revokes a running job that will restart as forks.
func (p *Planner) revokeForForks(j *Job) {
	p.Drop(j)
	switch {
	case p.decided[j] == undecided && !p.reclaimsAll:
		p.releaseEarly(j)
	case !p.Reclaimed(j):
		return
	}
	p.decide(j, evicted)
	p.plan.Revokes = append(p.plan.Revokes, Revoke{Job: j, Reason: "it goes on as several forks"})
}

// ClaimForks grants a job the gangs that were reserved for its forks if it waits and all are free, or, unless it is
// patient, those that are free. Otherwise it holds back the free ones, while there are any or an ending job still holds
// the others. It returns the gangs that the job has or waits for.
func (p *Planner) ClaimForks(j *Job, gangs []cluster.Gang, patient bool, reason string, divide Divider) (Claim, []cluster.Gang) {
	var free, coming []cluster.Gang
	for _, g := range gangs {
		switch {
		case p.free.Fits(g, j.Demand) && !p.pending.isAnyPending(g):
			free, coming = append(free, g), append(coming, g)
		case p.free.IsFree(g) || p.endingJobHolds(g, sameDevice):
			coming = append(coming, g)
		}
	}
	if j.Waiting() && len(free) > 0 && (len(free) == len(coming) || !patient) {
		done := false
		if len(free) == 1 {
			done = p.PlaceOn(j, free[0], reason)
		} else {
			done = p.PlaceForks(j, free, reason, divide)
		}
		if done {
			return Fulfilled, free
		}
	}
	if len(coming) == 0 {
		return Lapsed, nil
	}
	for _, g := range coming {
		p.HoldBack(p.free.FreePart(g), j.Demand)
	}
	return Held, coming
}
