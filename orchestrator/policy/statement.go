package policy

import (
	"time"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
)

// Statement is a simulation: what is taken and released on a view's free capacity since it began, and what is planned in
// a Planner that it was begun in, is kept by Commit and undone by Discard. Statements nest: an inner one ends before the
// outer, and discarding the outer undoes what the inner committed.
type Statement struct {
	free *cluster.Capacity
	mark int
	// planner is what the statement was begun in, nil for the view, and saved is how far it was.
	planner *Planner
	saved   progress
	ended   bool
}

// progress is how far a planner is: the lengths of its lists, and its term.
type progress struct {
	grants, renews, revokes, reserved, changes int
	term                                       func(cluster.Gang) time.Time
}

// Statement begins a simulation on the view's free capacity.
func (v *View) Statement() *Statement { return &Statement{free: v.Free, mark: v.Free.Mark()} }

// Commit keeps what was simulated. To end a statement again does nothing.
func (s *Statement) Commit() {
	if s.end() && s.planner != nil && s.planner.open == 0 {
		s.planner.changes = s.planner.changes[:0]
	}
}

// Discard undoes what was simulated. To end a statement again does nothing.
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
		s.planner.open--
	}
	return true
}

// Statement begins a simulation within the plan: Discard undoes what was decided since.
func (p *Planner) Statement() *Statement {
	p.open++
	return &Statement{free: p.free, mark: p.free.Mark(), planner: p, saved: progress{
		len(p.plan.Grants), len(p.plan.Renews), len(p.plan.Revokes), len(p.reserved), len(p.changes), p.term,
	}}
}

// change is what one step changed beside the lists and the free capacity: what is decided about a job, and what has
// still to be released. Planners note it while a statement is open.
type change struct {
	job *Job
	was decision
	// undo says what undoes the change of what has still to be released; nil if that did not change.
	undo   func(*pendingRelease, cluster.Gang, cluster.Demand)
	gang   cluster.Gang
	demand cluster.Demand
}

func (p *Planner) note(c change) {
	if p.open > 0 {
		p.changes = append(p.changes, c)
	}
}

// decide notes what was decided about a job.
func (p *Planner) decide(j *Job, d decision) {
	p.note(change{job: j, was: p.decided[j]})
	p.decided[j] = d
}

// settle says that what a gang takes in the plan need not be free now.
func (p *Planner) settle(g cluster.Gang, d cluster.Demand) {
	p.pending.settle(g, d)
	p.note(change{undo: (*pendingRelease).unsettle, gang: g, demand: d})
}

func (p *Planner) unsettle(g cluster.Gang, d cluster.Demand) {
	p.pending.unsettle(g, d)
	p.note(change{undo: (*pendingRelease).settle, gang: g, demand: d})
}

// release plans with what a running job holds, before it releases it.
func (p *Planner) release(j *Job) {
	p.free.Release(j.Held(), j.Demand)
	p.pending.add(j.Held(), j.Demand)
	p.note(change{undo: (*pendingRelease).remove, gang: j.Held(), demand: j.Demand})
}

// restore goes back to where the planner was. The free capacity is rolled back by the statement.
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
	p.changes, p.term = p.changes[:to.changes], to.term
	p.plan.Grants, p.plan.Renews = p.plan.Grants[:to.grants], p.plan.Renews[:to.renews]
	p.plan.Revokes, p.reserved = p.plan.Revokes[:to.revokes], p.reserved[:to.reserved]
}
