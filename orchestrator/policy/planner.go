package policy

import (
	"time"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
)

// Planner makes a plan out of decisions about jobs: a policy goes through jobs in its order and says Keep, Place, PlaceOn
// or Renew. What a plan reclaims and does not keep is revoked. Devices that have still to be released are planned with:
// who is placed on them is granted them in a later round, when they are free, and until then they are reserved for it. So
// a policy that decides by the view alone need not remember what it wanted; others keep the Reservations.
//
// A Planner plans on the view's free capacity, in a statement that Plan discards: the view is then as it was.
type Planner struct {
	v         *View
	statement *Statement
	// free is what the plan leaves free: the view's, and all that is reclaimed and not kept.
	free *cluster.Capacity
	// pending is what of it has still to be released.
	pending pendingRelease
	// all says that every running job is reclaimed but for those decided about.
	all      bool
	decided  map[*Job]decision
	term     func(cluster.Gang) time.Time
	plan     Plan
	reserved []Reserved
	// open counts the statements begun in this planner that have not ended, and changes are since the outermost began.
	open    int
	changes []change
}

// decision is what a plan says of a job.
type decision uint8

const (
	undecided decision = iota
	// reclaimed jobs are revoked unless they are kept.
	reclaimed
	kept
	renewed
	granted
	// reserved devices are held back for the job. If it runs it is to move there, and is revoked: a moving job's own
	// devices are planned with, a leaving one's are not.
	reserved
	moving
	leaving
	evicted
)

// Extend starts a plan in which what runs goes on.
func Extend(v *View) *Planner {
	return &Planner{v: v, statement: v.Statement(), free: v.Free, pending: pendingRelease{free: v.Free}, decided: map[*Job]decision{}}
}

// Preempt starts a plan in which every device is up for grabs, those of running jobs included.
func Preempt(v *View) *Planner {
	p := Extend(v)
	p.all = true
	p.eachRunning(p.release)
	return p
}

// Refill starts a plan in which what runs goes on, and the devices of jobs that are ending are planned with as well: who
// comes first holds them back, and is granted them once they are free. It costs less than Preempt where little changes.
func Refill(v *View) *Planner {
	p := Extend(v)
	p.eachRunning(func(j *Job) {
		if j.Ending {
			p.Reclaim(j)
		}
	})
	return p
}

func (p *Planner) eachRunning(do func(*Job)) {
	for _, a := range p.v.Apps {
		for _, j := range a.Jobs {
			if j.Running() {
				do(j)
			}
		}
	}
}

// Until sets the end of the term of what is granted and renewed from now on; zero, as at first, for none.
func (p *Planner) Until(termEnd time.Time) {
	p.UntilBy(func(cluster.Gang) time.Time { return termEnd })
}

// UntilBy sets how the end of the term of what is granted and renewed from now on follows from the gang.
func (p *Planner) UntilBy(termEnd func(cluster.Gang) time.Time) { p.term = termEnd }

// until is the end of a gang's term; zero for none.
func (p *Planner) until(g cluster.Gang) time.Time {
	if p.term == nil {
		return time.Time{}
	}
	return p.term(g)
}

// Free is what the plan leaves free, devices that have still to be released included.
func (p *Planner) Free() *cluster.Capacity { return p.free }

// Pending says whether a device that is planned with has still to be released by somebody.
func (p *Planner) Pending(node, device int) bool { return p.pending.device(node, device) }

// PendingAny says whether some device of a gang that is planned with has still to be released by somebody.
func (p *Planner) PendingAny(g cluster.Gang) bool { return p.pending.anyOf(g) }

// Reclaim plans with the devices of a running job, which is revoked at the end unless it is kept.
func (p *Planner) Reclaim(j *Job) {
	if !j.Running() || p.all {
		return
	}
	switch p.decided[j] {
	case undecided:
		p.release(j)
		p.decide(j, reclaimed)
	case leaving:
		p.release(j)
		p.decide(j, moving)
	}
}

// Reclaimed says whether a job's devices are planned with and were not given back to it.
func (p *Planner) Reclaimed(j *Job) bool {
	d := p.decided[j]
	return d == reclaimed || p.all && d == undecided && j.Running()
}

// Keep lets a running job whose devices were reclaimed go on where it is, if nothing planned before took them or its quota.
func (p *Planner) Keep(j *Job) bool {
	if j.Ending || !p.Reclaimed(j) || !p.free.IsFree(j.Held()) || !p.free.Within(j.Held(), j.Demand) {
		return false
	}
	p.free.Take(j.Held(), j.Demand)
	p.settle(j.Held(), j.Demand)
	p.decide(j, kept)
	return true
}

// Drop undoes a Keep: the job is revoked after all, unless it is kept again.
func (p *Planner) Drop(j *Job) {
	if p.decided[j] == kept {
		p.free.Release(j.Held(), j.Demand)
		p.unsettle(j.Held(), j.Demand)
		p.decide(j, reclaimed)
	}
}

// Renew keeps a running job, reclaimed or not, for another term. Unlike Keep it fails if others took its cores or memory,
// or its node drains.
func (p *Planner) Renew(j *Job, reason string) bool {
	switch {
	case !j.Running() || j.Ending || p.Reclaimed(j) && (!p.free.Fits(j.Held(), j.Demand) || !p.Keep(j)):
		return false
	case p.decided[j] != kept && p.decided[j] != undecided:
		return false
	}
	p.decide(j, renewed)
	p.plan.Renews = append(p.plan.Renews, Renew{Job: j, TermEnd: p.until(j.Gang()), Reason: reason})
	return true
}

// Evict revokes a running job that was not reclaimed, so that its devices can be planned with.
func (p *Planner) Evict(j *Job, reason string) {
	if !j.Running() || j.Ending || p.all || p.decided[j] != undecided {
		return
	}
	p.release(j)
	p.decide(j, evicted)
	p.plan.Revokes = append(p.plan.Revokes, Revoke{Job: j, Reason: reason})
}

// PlaceOn gives a job a gang. It is granted now if the job waits and every device is free now; otherwise the devices are
// reserved for it. A running job is revoked, and moves. It fails if the gang is not free in the plan, or
// it was said already where the job goes on.
func (p *Planner) PlaceOn(j *Job, g cluster.Gang, reason string) bool {
	if j.App.Paused || !p.placeable(j) || !p.free.Fits(g, j.Demand) {
		return false
	}
	p.free.Take(g, j.Demand)
	if j.Waiting() && !p.pending.blocks(g, j.Demand) {
		p.decide(j, granted)
		p.plan.Grants = append(p.plan.Grants, Grant{Job: j, Gang: g, Reason: reason, TermEnd: p.until(g)})
		return true
	}
	p.settle(g, j.Demand)
	p.decide(j, p.reserving(j))
	p.reserved = append(p.reserved, Reserved{Job: j, Gang: g})
	return true
}

// placeable says whether a job may be given a place: none was, and it was not said to go on where it is.
func (p *Planner) placeable(j *Job) bool {
	d := p.decided[j]
	return d == undecided || d == reclaimed || d == evicted
}

// reserving is the decision to hold a place back for a job.
func (p *Planner) reserving(j *Job) decision {
	switch {
	case !j.Running() || j.Ending || p.decided[j] == evicted:
		return reserved
	case p.Reclaimed(j):
		return moving
	default:
		return leaving
	}
}

// Granted says whether a job was given devices that are free now.
func (p *Planner) Granted(j *Job) bool { return p.decided[j] == granted }

// Reserved is a gang that a plan holds back for a job.
type Reserved struct {
	Job  *Job
	Gang cluster.Gang
}

// Reserved lists what PlaceOn could not grant yet.
func (p *Planner) Reserved() []Reserved { return p.reserved }

// Plan ends the planning, leaves the view as it was, and returns what was decided. evicted is the reason given to jobs
// that were reclaimed and not kept.
func (p *Planner) Plan(reason, evicted string) Plan {
	p.plan.Reason = reason
	if p.all || len(p.decided) > 0 {
		p.eachRunning(func(j *Job) {
			if d := p.decided[j]; !j.Ending && (p.Reclaimed(j) || d == moving || d == leaving) {
				p.plan.Revokes = append(p.plan.Revokes, Revoke{Job: j, Reason: evicted})
			}
		})
	}
	p.statement.Discard()
	return p.plan
}
