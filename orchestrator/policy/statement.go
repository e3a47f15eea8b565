package policy

import (
	"time"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
)

// Statement is a simulation. Commit keeps, and Discard undoes, what was taken from and released to a view's free
// capacity since the statement began and, if it began in a Planner, what was planned. Statements nest: an inner one
// must end before the outer one, and discarding the outer one undoes what the inner one committed.
type Statement struct {
	free *cluster.Capacity
	mark int
	// planner is the Planner that the statement began in, or nil if it began in a view. saved is the planner's progress
	// then.
	planner *Planner
	saved   progress
	ended   bool
}

// progress holds the lengths of a planner's lists, and its term.
type progress struct {
	grants, renews, revokes, reserved, changes int
	term                                       func(cluster.Gang) time.Time
}

// Statement begins a simulation on the view's free capacity.
func (v *View) Statement() *Statement { return &Statement{free: v.Free, mark: v.Free.Mark()} }

// Commit keeps what was simulated. It does nothing if the statement has ended.
func (s *Statement) Commit() {
	if s.end() && s.planner != nil && s.planner.openStatements == 0 {
		s.planner.changes = s.planner.changes[:0]
	}
}

// Discard undoes what was simulated. It does nothing if the statement has ended.
func (s *Statement) Discard() {
	if !s.end() {
		return
	}
	s.free.Rollback(s.mark)
	if s.planner != nil {
		s.planner.restore(s.saved)
	}
}

func (s *Statement) end() bool {
	if s.ended {
		return false
	}
	s.ended = true
	if s.planner != nil {
		s.planner.openStatements--
	}
	return true
}

// Statement begins a simulation within the plan: Discard undoes the decisions made since.
func (p *Planner) Statement() *Statement {
	p.openStatements++
	return &Statement{free: p.free, mark: p.free.Mark(), planner: p, saved: progress{
		len(p.plan.Grants), len(p.plan.Renews), len(p.plan.Revokes), len(p.reserved), len(p.changes), p.termEndOf,
	}}
}

// change is what one step changed apart from the lists and the free capacity: the decision about a job and the pending
// release. A planner logs changes while a statement is open.
type change struct {
	job *Job
	was decision
	// undo reverts the change of the pending release; nil if that did not change.
	undo   func(*pendingRelease, cluster.Gang, cluster.Demand)
	gang   cluster.Gang
	demand cluster.Demand
}

func (p *Planner) recordChange(c change) {
	if p.openStatements > 0 {
		p.changes = append(p.changes, c)
	}
}

// decide records a decision about a job.
func (p *Planner) decide(j *Job, d decision) {
	p.recordChange(change{job: j, was: p.decided[j]})
	p.decided[j] = d
}

// waivePending records that the resources that a gang takes in the plan need not be free now.
func (p *Planner) waivePending(g cluster.Gang, d cluster.Demand) {
	p.pending.waive(g, d)
	p.recordChange(change{undo: (*pendingRelease).unwaive, gang: g, demand: d})
}

func (p *Planner) unwaivePending(g cluster.Gang, d cluster.Demand) {
	p.pending.unwaive(g, d)
	p.recordChange(change{undo: (*pendingRelease).waive, gang: g, demand: d})
}

// releaseEarly lets the plan use what a running job holds before the job releases it.
func (p *Planner) releaseEarly(j *Job) {
	p.free.Release(j.Held(), j.Demand)
	p.pending.add(j.Held(), j.Demand)
	p.recordChange(change{undo: (*pendingRelease).remove, gang: j.Held(), demand: j.Demand})
}

// restore reverts the planner to earlier progress. The statement itself rolls back the free capacity.
func (p *Planner) restore(to progress) {
	for i := len(p.changes) - 1; i >= to.changes; i-- {
		c := &p.changes[i]
		switch {
		case c.undo != nil:
			c.undo(&p.pending, c.gang, c.demand)
		case c.was == undecided:
			delete(p.decided, c.job)
		default:
			p.decided[c.job] = c.was
		}
	}
	p.changes, p.termEndOf = p.changes[:to.changes], to.term
	p.plan.Grants, p.plan.Renews = p.plan.Grants[:to.grants], p.plan.Renews[:to.renews]
	p.plan.Revokes, p.reserved = p.plan.Revokes[:to.revokes], p.reserved[:to.reserved]
}
