package hadar

import (
	"slices"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/forking"
)

// HadarE (section V of the paper's second part) runs a trial that may be forked as forks (the paper's copies) on
// several nodes at once, so that no node idles while a trial is unfinished. In each fork slot Hadar places one fork of
// every trial; nodes that are left get further forks, each where it adds most to a trial's utility. A trial's steps are
// divided over its forks in proportion to their rates. All forks end when their shares are done or the slot ends, and
// their checkpoints are averaged.
//
// This differs from the paper in three ways: only trials that allow it are forked; the slot of trials submitted in the
// second half of a slot lasts until the end of the next one; and the last step before a trial's target is trained by
// one fork alone, so that its report is of the averaged weights.

// NewForking makes HadarE's scheduler from its options.
func NewForking(o *policy.Options) policy.Policy { return NewForkingVariant(o, Default()) }

// NewForkingVariant makes a variant of HadarE's scheduler from its options.
func NewForkingVariant(o *policy.Options, v Variant) *Policy {
	p := NewVariant(o, v)
	p.forks = true
	return p
}

// waitDivisor is the divisor of a slot's length that gives how long, from its start, a job waits for devices that other
// jobs still hold.
const waitDivisor = 4

// copies is the planned placement of a job: one gang on each of several nodes.
type copies struct {
	*entry

	gangs []cluster.Gang
	rates []float64
	// runs means that it runs on one gang already and must be stopped to get more.
	runs bool
}

func (c *copies) rate() (sum float64) {
	for _, r := range c.rates {
		sum += r
	}
	return sum
}

func (c *copies) isOn(node int) bool {
	return slices.ContainsFunc(c.gangs, func(g cluster.Gang) bool { return g[0].Node == node })
}

// decideForks plans for all waiting jobs, and for those that will wait soon because their forks are ending or being
// averaged. Devices are held back for the latter so that jobs which are ready earlier do not take them.
func (p *Policy) decideForks(v *policy.View) policy.Plan {
	plan, begins := policy.Extend(v), !v.Now.Before(p.s.Next)
	if begins {
		p.s.Next = v.Now.Add(p.round)
	}
	var jobs []*policy.Job
	for _, a := range v.Apps {
		for _, j := range a.Jobs {
			switch {
			case j.Running() && j.Forked && !j.Ending && v.Now.Before(j.TermEnd):
				continue // its fork slot has not ended
			case j.Running() && j.Forked && !j.Ending:
				plan.Evict(j, "the slot is over")
			case j.Running() && (j.Ending || begins):
				plan.Reclaim(j)
			case j.Running() || a.Paused:
				continue
			}
			jobs = append(jobs, j)
		}
	}
	r := p.newRound(v, plan, jobs)
	all := r.queue
	for len(r.queue) > 0 && r.free.FreeDevices() > 0 {
		r.window()
	}
	r.fill()
	spread := r.spread(append(slices.Clip(all), r.passed...))
	done := plan.Plan("jobs that wait, by payoff, and copies where nodes would idle", "it moves, or goes on as several copies")
	p.share(v, &done, plan, spread)
	if done.Next = p.s.Next; len(v.Jobs()) == 0 {
		done.Next = time.Time{}
	}
	return done
}

// spread gives idle nodes to further forks of the jobs that have a place.
func (r *round) spread(entries []*entry) map[*policy.Job]*copies {
	placed := r.placed(entries)
	byJob := map[*policy.Job]*copies{}
	for _, c := range placed {
		byJob[c.job] = c
	}
	for r.free.FreeDevices() > 0 {
		var best *copies
		var where cluster.Gang
		most := 0.0
		for _, c := range placed {
			if len(c.gangs) >= c.job.Forks {
				continue
			}
			if gang, gain := r.nextCopy(c); gain > most {
				best, where, most = c, gang, gain
			}
		}
		if best == nil || !r.fork(best, where) {
			return byJob
		}
	}
	return byJob
}

// placed returns the jobs with a place on one node in the plan, in the order of the queue.
func (r *round) placed(entries []*entry) []*copies {
	var all []*copies
	for i, e := range entries {
		if e.job.Forks <= 1 || slices.Index(entries, e) < i {
			continue
		}
		c := &copies{entry: e, gangs: []cluster.Gang{e.gang}, runs: e.kept}
		if len(e.gang) == 1 {
			c.rates = []float64{r.v.Rate(e.job, e.gang)}
			all = append(all, c)
		}
	}
	return all
}

// nextCopy returns the free place on one more node that adds most to a job's utility, and the gain, which is 0 if no
// place qualifies or the forks would cost more time than they save.
func (r *round) nextCopy(c *copies) (best cluster.Gang, gain float64) {
	d, have := c.job.Demand, c.rate()
	fastest := 0.0
	for node := range r.capacity {
		if c.isOn(node) || !r.free.Admits(node, d) {
			continue
		}
		for _, k := range c.order {
			n := min(wants(d), r.free.FreeAt(node, r.types[k]))
			if n < max(1, d.Min) {
				continue
			}
			if g, ok := r.free.PlaceAt(node, d, n, r.types[k]); ok {
				if rate := r.v.Rate(c.job, g); rate > fastest {
					best, fastest = g, rate
				}
			}
			break // the types are in order of speed
		}
	}
	if fastest <= 0 {
		return nil, 0
	}
	now, then := c.left/have, c.left/(have+fastest)
	if c.runs || len(c.gangs) == 1 {
		then += r.restart // the forks are averaged and the job restarts
	}
	return best, r.utility(c.entry, then) - r.utility(c.entry, now)
}

// fork plans another fork of a job. A job that runs on one gang is stopped and restarted as several forks.
func (r *round) fork(c *copies, g cluster.Gang) bool {
	if c.runs {
		r.plan.Drop(c.job)
		if !r.plan.PlaceOn(c.job, c.job.Gang(), "several copies of it are faster") {
			return false
		}
		c.runs = false
	}
	r.free.Take(g, c.job.Demand)
	c.gangs, c.rates = append(c.gangs, g), append(c.rates, r.v.Rate(c.job, g))
	return true
}

// share divides the steps of the jobs that are granted a place over their forks. A job that needs devices which other
// jobs still hold waits for them for a while, and then gets those that are free.
func (p *Policy) share(v *policy.View, done *policy.Plan, plan *policy.Planner, spread map[*policy.Job]*copies) {
	ends := p.s.Next
	patient := v.Now.Before(p.s.Next.Add(-p.round + p.round/waitDivisor))
	if ends.Sub(v.Now) < p.round/2 {
		ends = ends.Add(p.round)
	}
	var grants []policy.Grant
	for _, g := range done.Grants {
		c := spread[g.Job]
		if c == nil || len(c.gangs) == 1 {
			grants = append(grants, g)
			continue
		}
		free := []cluster.Gang{}
		for i, gang := range c.gangs {
			if i == 0 || !plan.PendingAny(gang) {
				free = append(free, gang)
			}
		}
		if len(free) < len(c.gangs) && patient {
			continue
		}
		grants = append(grants, p.divided(v, g, free, ends)...)
	}
	done.Grants = grants
}

// divided returns the grants for a job's fork slot: as many forks as it needs, the one with the largest share first.
func (p *Policy) divided(v *policy.View, g policy.Grant, gangs []cluster.Gang, ends time.Time) []policy.Grant {
	slot := ends.Sub(v.Now)
	slot -= min(time.Duration(p.restart*float64(time.Second)), slot/2)
	grants := forking.Grants(v, g, gangs, slot)
	if len(grants) > 1 {
		for i := range grants {
			grants[i].TermEnd = ends
		}
	}
	return grants
}
