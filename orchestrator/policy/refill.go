package policy

// Refill starts a plan in which what runs goes on, and the devices of jobs that are ending are planned with as well: who
// comes first holds them back, and is granted them once they are free. It costs less than Preempt where little changes.
func Refill(v *View) *Planner {
	p := &Planner{v: v, soon: v.Free}
	p.eachRunning(func(j *Job) {
		if j.Ending {
			p.owed.Add(j.Gang, j.Demand)
			p.soon.Release(j.Gang, j.Demand)
		}
	})
	return p
}

// Evict revokes a running job in a plan that began with Refill or Extend, so that its devices can be planned with.
func (p *Planner) Evict(j *Job, reason string) {
	if !j.Running() || j.Ending {
		return
	}
	p.owed.Add(j.Gang, j.Demand)
	p.soon.Release(j.Gang, j.Demand)
	p.plan.Revokes = append(p.plan.Revokes, Revoke{Job: j, Reason: reason})
}

// Fill puts waiting jobs in the given order, each where it fits best, until nothing is free. One that does not fit is
// passed over, and so is, unseen, whoever asks for as much or more.
func (p *Planner) Fill(jobs []*Job, reason string) {
	var misses Misses
	for _, j := range jobs {
		if p.soon.FreeDevices() == 0 {
			return
		}
		if j.Waiting() && !misses.Covers(j.Demand) && !p.Put(j, reason) {
			misses.Add(j.Demand)
		}
	}
}

// Drop undoes a Keep: the job is revoked after all, unless it is kept again.
func (p *Planner) Drop(j *Job) {
	if p.held[j] {
		p.soon.Release(j.Gang, j.Demand)
		p.owed.Unsettle(j.Gang, j.Demand)
		delete(p.held, j)
	}
}
