package policy

import (
	"iter"
	"slices"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
)

// Planner makes a plan out of decisions about jobs: a policy goes through jobs in its order and says Keep, Put or PutOn.
// What runs and is not kept is revoked. Devices that have still to be given up are planned with, and granted in a later
// round, when they are free; so a policy that decides by the view alone need not remember what it wanted.
type Planner struct {
	v *View
	// soon is what will be free: the view's, and all that is not kept.
	soon *cluster.Capacity
	// owed is what soon has free before it is given up.
	owed Owed
	held map[*Job]bool
	plan Plan
}

// Preempt starts a plan in which every device is up for grabs, those of running jobs included.
func Preempt(v *View) *Planner {
	p := &Planner{v: v, soon: v.Free, held: map[*Job]bool{}}
	p.eachRunning(func(j *Job) {
		p.owed.Add(j.Gang, j.Demand)
		p.soon.Release(j.Gang, j.Demand)
	})
	return p
}

// Extend starts a plan in which what runs goes on.
func Extend(v *View) *Planner {
	return &Planner{v: v, soon: v.Free, held: nil}
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

// Free is what the plan leaves free, devices that have still to be given up included.
func (p *Planner) Free() *cluster.Capacity { return p.soon }

// Keep lets a running job go on where it is, if nothing planned before took its devices.
func (p *Planner) Keep(j *Job) bool {
	if !j.Running() || j.Ending || p.held == nil || !p.soon.IsFree(j.Gang) {
		return false
	}
	p.soon.Take(j.Gang, j.Demand)
	p.owed.Settle(j.Gang, j.Demand)
	p.held[j] = true
	return true
}

// Put finds a place for a waiting job that is as good as any, and says whether there was one.
func (p *Planner) Put(j *Job, reason string) bool {
	g, ok := p.soon.Best(j.Demand)
	return ok && p.PutOn(j, p.Sooner(j, g), reason, time.Time{})
}

// KeepOrPut keeps a running job, or finds a place for one that waits. A job whose devices are gone is found another
// place and moves there: it is revoked now and granted that place once it has saved.
func (p *Planner) KeepOrPut(j *Job, reason string) bool {
	if p.Keep(j) {
		return true
	}
	if j.App.Paused {
		return false
	}
	return p.Put(j, reason)
}

// PutOn gives a job a gang until the end of a term, zero for none. It is granted now if the job waits and every device
// is free now; otherwise the devices are held back for it in this plan.
func (p *Planner) PutOn(j *Job, g cluster.Gang, reason string, termEnd time.Time) bool {
	if j.App.Paused || !p.soon.Fits(g, j.Demand) {
		return false
	}
	p.soon.Take(g, j.Demand)
	if j.Waiting() && !p.owed.Blocks(p.soon, g) {
		p.plan.Grants = append(p.plan.Grants, Grant{Job: j, Gang: g, Reason: reason, TermEnd: termEnd})
	} else {
		p.owed.Settle(g, j.Demand)
	}
	return true
}

// Renew keeps a running job for another term.
func (p *Planner) Renew(j *Job, termEnd time.Time, reason string) bool {
	if !p.Keep(j) {
		return false
	}
	p.plan.Renews = append(p.plan.Renews, Renew{Job: j, TermEnd: termEnd, Reason: reason})
	return true
}

// Plan returns what was decided. evicted is the reason given to jobs that ran and were not kept.
func (p *Planner) Plan(reason, evicted string) Plan {
	p.plan.Reason = reason
	if p.held != nil {
		p.eachRunning(func(j *Job) {
			if !p.held[j] && !j.Ending {
				p.plan.Revokes = append(p.plan.Revokes, Revoke{Job: j, Reason: evicted})
			}
		})
	}
	return p.plan
}

// Waiting lists the jobs that want devices: by app in order of submission, within it the longest waiting first.
func (v *View) Waiting() []*Job { return slices.Collect(v.Line()) }

// Line goes through the jobs that Waiting lists, one by one, for those who seldom need all of them.
func (v *View) Line() iter.Seq[*Job] {
	return func(yield func(*Job) bool) {
		var own []*Job
		for _, a := range v.Apps {
			own = own[:0]
			for _, j := range a.Jobs {
				if j.Waiting() {
					own = append(own, j)
				}
			}
			if len(own) > 1 {
				slices.SortStableFunc(own, func(a, b *Job) int { return a.Queued.Compare(b.Queued) })
			}
			for _, j := range own {
				if !yield(j) {
					return
				}
			}
		}
	}
}

// Jobs lists every job that holds devices or may have some: by app in order of submission, within it by number.
func (v *View) Jobs() []*Job {
	var all []*Job
	for _, a := range v.Apps {
		for _, j := range a.Jobs {
			if j.Running() || j.Waiting() {
				all = append(all, j)
			}
		}
	}
	return all
}
