package themis

import (
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/agent"
	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/policy"
)

// Forks are another use of a grant. A sweep whose trials may be forked bids for more gangs than it has trials, of any
// types, and gangs beyond one per trial go to forks. So do, in the end, the devices left when every trial that can have
// a gang has one. No two forks of a trial share a node. All forks of a trial start together, each with a share of its
// steps, and end by the end of their leases' term; then they are averaged, and the trial bids again.

// forkSet is the planned placement of a trial that may be forked: on one gang, or with a fork on each of several nodes.
type forkSet struct {
	job *policy.Job
	// of is its sweep's index in the ranking.
	of     int
	gangs  []cluster.Gang
	reason string
	// here means that it already runs on the first gang and continues there without a stop unless it gets more.
	here bool
	// whole means that it may not get more gangs.
	whole bool
}

// rate returns the total steps per second of its forks.
func (c *forkSet) rate(v *policy.View) (sum float64) {
	for _, g := range c.gangs {
		sum += v.Rate(c.job, g)
	}
	return sum
}

// on reports whether it has a gang on a node.
func (c *forkSet) on(node int) bool {
	return slices.ContainsFunc(c.gangs, func(g cluster.Gang) bool {
		return slices.ContainsFunc(g, func(at cluster.Place) bool { return at.Node == node })
	})
}

// place gives a trial a gang that is free in the plan. For a trial that may be forked the gang is set aside until it is
// known what else the trial gets.
func (p *placing) place(of int, j *policy.Job, g cluster.Gang, reason string) bool {
	if !j.MayFork() {
		return p.plan.PlaceOn(j, g, reason)
	}
	if p.forkSets[j] != nil || !p.plan.Free().Fits(g, j.Demand) {
		return false
	}
	p.plan.HoldBack(g, j.Demand)
	p.gather(&forkSet{job: j, of: of, gangs: []cluster.Gang{g}, reason: reason})
	return true
}

// keep lets a trial continue where it is. A trial that may be forked may still leave to get more gangs.
func (p *placing) keep(of int, j *policy.Job, reason string) bool {
	if !j.MayFork() {
		return p.plan.Renew(j, reason)
	}
	if p.plan.Reclaimed(j) && (!p.plan.Free().Fits(j.Held(), j.Demand) || !p.plan.Keep(j)) {
		return false
	}
	p.gather(&forkSet{job: j, of: of, gangs: []cluster.Gang{j.Gang()}, reason: reason, here: true})
	return true
}

func (p *placing) gather(c *forkSet) {
	if p.forkSets == nil {
		p.forkSets = map[*policy.Job]*forkSet{}
	}
	p.forkSets[c.job] = c
	p.gathered = append(p.gathered, c)
}

// settle plans the gangs that were set aside, when all gangs have been given.
func (p *placing) settle(until terms) {
	for _, c := range p.gathered {
		p.setDown(c, until)
	}
}

// setDown plans a fork set, whose devices have been set aside.
func (p *placing) setDown(c *forkSet, until terms) {
	if c.here && len(c.gangs) == 1 {
		p.plan.Renew(c.job, c.reason)
		return
	}
	for i, g := range c.gangs {
		if i > 0 || !c.here {
			p.plan.Free().Release(g, c.job.Demand)
		}
	}
	if len(c.gangs) > 1 {
		p.plan.UntilBy(until.slot)
		placed := p.plan.PlaceForks(c.job, c.gangs, c.reason, divider(p.v))
		p.plan.UntilBy(until.lease)
		if placed {
			return
		}
	}
	p.plan.PlaceOn(c.job, c.gangs[0], c.reason)
}

// disband leaves a trial one gang if it has fewer than its LeastForks, and reports whether that freed any.
func (p *placing) disband(c *forkSet) bool {
	if len(c.gangs) == 1 || len(c.gangs) >= c.job.LeastForks {
		return false
	}
	best := 0
	for i, g := range c.gangs {
		if !c.here && p.v.Rate(c.job, g) > p.v.Rate(c.job, c.gangs[best]) {
			best = i
		}
	}
	for i, g := range c.gangs {
		if i != best {
			p.plan.Free().Release(g, c.job.Demand)
			p.shares[c.of].devices -= g.Size()
			p.parts.spend(c.of, -g.Size())
		}
	}
	c.gangs, c.whole = c.gangs[best:best+1], true
	return true
}

// forkWon gives a gang that was won, and that no trial of the sweep can have as its first, to a fork of the trial that
// gains the most time by it.
func (p *placing) forkWon(w win) bool {
	if w.gang.Machines != 1 {
		return false
	}
	c, g := p.bestFork(w.of, w.gang)
	if c == nil {
		return false
	}
	c.reason = w.reason()
	s := &p.shares[w.of]
	s.won = book(p.v, s.won, g)
	p.join(c, g)
	return true
}

// join adds a gang to a trial.
func (p *placing) join(c *forkSet, g cluster.Gang) {
	p.plan.HoldBack(g, c.job.Demand)
	c.gangs = append(c.gangs, g)
	p.shares[c.of].devices += g.Size()
	p.parts.spend(c.of, g.Size())
}

// bestFork returns the trial of a sweep that gains the most time by a gang like the given one, and the free place for
// it, or nil if no trial gains. The zero value of like matches any gang.
func (p *placing) bestFork(of int, like agent.Gangs) (best *forkSet, where cluster.Gang) {
	most := 0.0
	for _, c := range p.candidates(of) {
		if g, sooner := p.another(c, like); sooner > most {
			best, where, most = c, g, sooner
		}
	}
	if best != nil && p.forkSets[best.job] == nil {
		p.gather(best)
	}
	return best, where
}

// candidates returns the trials of a sweep that could have another fork: those with a place in this round, and those
// that run alone on a lease that has not expired.
func (p *placing) candidates(of int) (all []*forkSet) {
	a := p.order[of].app
	if a.Forks <= 1 {
		return nil
	}
	for _, j := range a.Jobs {
		c := p.forkSets[j]
		if c == nil && p.supply.alone(j) && !p.v.Draining(j.Held()) {
			c = &forkSet{job: j, of: of, gangs: []cluster.Gang{j.Gang()}, here: true}
		}
		if c != nil && !c.whole && len(c.gangs) < j.Forks && len(c.gangs[0]) == 1 {
			all = append(all, c)
		}
	}
	return all
}

// another returns a free place on another node for such a gang, and the seconds that the trial would gain by it, which
// are 0 if the fork costs more time than it saves.
func (p *placing) another(c *forkSet, like agent.Gangs) (g cluster.Gang, sooner float64) {
	left, have := p.left(c.job), c.rate(p.v)
	if left < float64(len(c.gangs))+2 { // one step per fork, and the last one, which is not forked
		return nil, 0
	}
	g, rate := p.fastest(c, like)
	switch {
	case rate <= 0:
		return nil, 0
	case have <= 0:
		return g, 1
	}
	then := left / (have + rate)
	if len(c.gangs) == 1 {
		then += p.set.restart // the forks are averaged and the trial restarts
	}
	return g, left/have - then
}

// fastest returns the fastest free place for such a gang on a node where the trial has none, and the rate, or 0 without
// a place. Of equally fast places it prefers one whose devices are already free.
func (p *placing) fastest(c *forkSet, like agent.Gangs) (best cluster.Gang, fastest float64) {
	free, late := p.plan.Free(), false
	for node := range p.v.Nodes {
		n := &p.v.Nodes[node]
		if like.Node != "" && like.Node != n.Name || like.Rack != "" && like.Rack != n.Rack || c.on(node) || !free.Admits(node, c.job.Demand) {
			continue
		}
		for _, kind := range free.Types() {
			g, ok := p.at(node, kind, c.job.Demand, like)
			if !ok {
				continue
			}
			rate, pending := p.v.Rate(c.job, g), p.plan.PendingAny(g)
			if rate > fastest || rate > 0 && rate == fastest && late && !pending {
				best, fastest, late = g, rate, pending
			}
		}
	}
	return best, fastest
}

// at returns a place for such a gang on a node, as large as the trial can use.
func (p *placing) at(node int, kind string, d cluster.Demand, like agent.Gangs) (cluster.Gang, bool) {
	if !d.Accepts(kind) || like.Type != "" && like.Type != kind {
		return nil, false
	}
	n := min(max(1, d.Min, d.Max), p.plan.Free().FreeAt(node, kind))
	if like.Devices > 0 {
		n = min(n, like.Devices)
	}
	if n < max(1, d.Min) {
		return nil, false
	}
	return p.plan.Free().PlaceAt(node, d, n, kind)
}

// left returns the number of steps until the trial's target.
func (p *placing) left(j *policy.Job) float64 {
	if j.Running() {
		return float64(j.UntilStep) - p.v.StepAt(j)
	}
	return float64(j.UntilStep - j.StartStep)
}

// forks gives the devices that no trial can have as its first gang to forks: to the sweeps in turns, one gang each.
func (p *placing) forks(turn []int) {
	if !slices.ContainsFunc(turn, func(i int) bool { return p.order[i].app.Forks > 1 }) {
		return
	}
	p.reclaim()
	for len(turn) > 0 && p.plan.Free().FreeDevices() > 0 {
		still := turn[:0:0]
		for _, i := range turn {
			c, g := p.bestFork(i, agent.Gangs{})
			if c == nil {
				continue
			}
			if c.reason == "" {
				c.reason = leftOver
			}
			s := &p.shares[i]
			s.leftover = book(p.v, s.leftover, g)
			p.join(c, g)
			still = append(still, i)
		}
		turn = still
	}
}
