package policy

import (
	"time"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
)

// Planner builds a plan from decisions about jobs: a policy goes through the jobs in its order and calls Keep, Place,
// PlaceOn or Renew. A job that was reclaimed and not kept is revoked. The plan may use devices that a job still has to
// release: a job placed on them is granted them in a later round, when they are free, and until then they are reserved
// for it. So a policy that decides from the view alone need not remember what it planned; others store the
// Reservations.
//
// A Planner works on the view's free capacity within a statement that Plan discards, so the view is unchanged in the
// end.
type Planner struct {
	v         *View
	statement *Statement
	// free is the capacity left by the plan: what is free in the view, plus what was reclaimed and not kept.
	free *cluster.Capacity
	// pending is the part of free that still has to be released.
	pending pendingRelease
	// reclaimsAll means that every running job is reclaimed unless there is a decision about it.
	reclaimsAll bool
	decided     map[*Job]decision
	termEndOf   func(cluster.Gang) time.Time
	plan        Plan
	reserved    []Reserved
	// openStatements counts the open statements of this planner, and changes lists the changes since the outermost
	// began.
	openStatements int
	changes        []change
}

// decision is the plan's decision about a job.
type decision uint8

const (
	undecided decision = iota
	// A reclaimed job is revoked unless it is kept.
	reclaimed
	kept
	renewed
	granted
	// For a reserved job devices are held back. A running job that moves to them is revoked: the plan may reuse the
	// devices of a moving job, but not those of a leaving one.
	reserved
	moving
	leaving
	evicted
)

// Extend starts a plan that leaves running jobs alone.
func Extend(v *View) *Planner {
	return &Planner{v: v, statement: v.Statement(), free: v.Free, pending: pendingRelease{free: v.Free}, decided: map[*Job]decision{}}
}

// Preempt starts a plan that may reassign every device, including those of running jobs.
func Preempt(v *View) *Planner {
	p := Extend(v)
	p.reclaimsAll = true
	p.eachRunning(p.releaseEarly)
	return p
}

// Refill starts a plan that leaves running jobs alone but may assign the devices of ending jobs: the first job placed
// on them reserves them and is granted them once they are free. It costs less than Preempt when little changes.
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

// Until sets the term's end for later grants and renewals. Zero, the initial value, means no term.
func (p *Planner) Until(termEnd time.Time) {
	p.UntilBy(func(cluster.Gang) time.Time { return termEnd })
}

// UntilBy sets a function that returns the term's end for a gang, for later grants and renewals.
func (p *Planner) UntilBy(termEnd func(cluster.Gang) time.Time) { p.termEndOf = termEnd }

// termEnd returns the end of a gang's term, or zero for no term.
func (p *Planner) termEnd(g cluster.Gang) time.Time {
	if p.termEndOf == nil {
		return time.Time{}
	}
	return p.termEndOf(g)
}

// Free returns the capacity left by the plan, including devices that still have to be released.
func (p *Planner) Free() *cluster.Capacity { return p.free }

// Pending reports whether a device that the plan uses still has to be released.
func (p *Planner) Pending(node, device int) bool { return p.pending.isPending(node, device) }

// PendingAny reports whether any device of a gang that the plan uses still has to be released.
func (p *Planner) PendingAny(g cluster.Gang) bool { return p.pending.isAnyPending(g) }

// Reclaim lets the plan use the devices of a running job, which is revoked in the end unless it is kept.
func (p *Planner) Reclaim(j *Job) {
	if !j.Running() || p.reclaimsAll {
		return
	}
	switch p.decided[j] {
	case undecided:
		p.releaseEarly(j)
		p.decide(j, reclaimed)
	case leaving:
		p.releaseEarly(j)
		p.decide(j, moving)
	}
}

// Reclaimed reports whether a job was reclaimed and has not been kept.
func (p *Planner) Reclaimed(j *Job) bool {
	d := p.decided[j]
	return d == reclaimed || p.reclaimsAll && d == undecided && j.Running()
}

// Keep lets a reclaimed job run on where it is, and fails if the plan has already used its devices or its quota.
func (p *Planner) Keep(j *Job) bool {
	if j.Ending || !p.Reclaimed(j) || !p.free.IsFree(j.Held()) || !p.free.Within(j.Held(), j.Demand) {
		return false
	}
	p.free.Take(j.Held(), j.Demand)
	p.waivePending(j.Held(), j.Demand)
	p.decide(j, kept)
	return true
}

// Drop undoes Keep: the job is revoked unless it is kept again.
func (p *Planner) Drop(j *Job) {
	if p.decided[j] == kept {
		p.free.Release(j.Held(), j.Demand)
		p.unwaivePending(j.Held(), j.Demand)
		p.decide(j, reclaimed)
	}
}

// Renew keeps a running job, reclaimed or not, for another term. Unlike Keep it fails if the plan has used the job's
// cores or memory, or if its node drains.
func (p *Planner) Renew(j *Job, reason string) bool {
	switch {
	case !j.Running() || j.Ending || p.Reclaimed(j) && (!p.free.Fits(j.Held(), j.Demand) || !p.Keep(j)):
		return false
	case p.decided[j] != kept && p.decided[j] != undecided:
		return false
	}
	p.decide(j, renewed)
	p.plan.Renews = append(p.plan.Renews, Renew{Job: j, TermEnd: p.termEnd(j.Gang()), Reason: reason})
	return true
}

// Evict revokes a running job that was not reclaimed, so that the plan can use its devices.
func (p *Planner) Evict(j *Job, reason string) {
	if !j.Running() || j.Ending || p.reclaimsAll || p.decided[j] != undecided {
		return
	}
	p.releaseEarly(j)
	p.decide(j, evicted)
	p.plan.Revokes = append(p.plan.Revokes, Revoke{Job: j, Reason: reason})
}

// PlaceOn gives a job a gang. The gang is granted now if the job waits and every device is free now; otherwise it is
// reserved for the job, and a running job is revoked to move there. PlaceOn fails if the gang is not free in the plan
// or the plan has already decided where the job runs.
func (p *Planner) PlaceOn(j *Job, g cluster.Gang, reason string) bool {
	if j.App.Paused || !p.canPlace(j) || !p.free.Fits(g, j.Demand) {
		return false
	}
	p.free.Take(g, j.Demand)
	if j.Waiting() && !p.pending.blocks(g, j.Demand) {
		p.decide(j, granted)
		p.plan.Grants = append(p.plan.Grants, Grant{Job: j, Gang: g, Reason: reason, TermEnd: p.termEnd(g)})
		return true
	}
	p.waivePending(g, j.Demand)
	p.decide(j, p.reservedAs(j))
	p.reserved = append(p.reserved, Reserved{Job: j, Gang: g})
	return true
}

// canPlace reports whether the plan has not yet decided where the job runs.
func (p *Planner) canPlace(j *Job) bool {
	d := p.decided[j]
	return d == undecided || d == reclaimed || d == evicted
}

// reservedAs returns the decision that holds a place back for a job.
func (p *Planner) reservedAs(j *Job) decision {
	switch {
	case !j.Running() || j.Ending || p.decided[j] == evicted:
		return reserved
	case p.Reclaimed(j):
		return moving
	default:
		return leaving
	}
}

// Granted reports whether a job was given devices that are free now.
func (p *Planner) Granted(j *Job) bool { return p.decided[j] == granted }

// Reserved is a gang that a plan holds back for a job.
type Reserved struct {
	Job  *Job
	Gang cluster.Gang
}

// Reserved lists the gangs that PlaceOn could not grant yet.
func (p *Planner) Reserved() []Reserved { return p.reserved }

// Plan ends planning, restores the view and returns the plan. evicted is the reason recorded for jobs that were
// reclaimed and not kept.
func (p *Planner) Plan(reason, evicted string) Plan {
	p.plan.Reason = reason
	if p.reclaimsAll || len(p.decided) > 0 {
		p.eachRunning(func(j *Job) {
			if d := p.decided[j]; !j.Ending && (p.Reclaimed(j) || d == moving || d == leaving) {
				p.plan.Revokes = append(p.plan.Revokes, Revoke{Job: j, Reason: evicted})
			}
		})
	}
	p.statement.Discard()
	return p.plan
}
