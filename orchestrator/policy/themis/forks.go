package themis

import (
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/bidder"
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
	// index is its sweep's index in the ranking.
	index  int
	gangs  []cluster.Gang
	reason string
	// runs means that it already runs on the first gang and continues there without a stop unless it gets more.
	runs bool
	// closed means that it may not get more gangs.
	closed bool
}

// rate returns the total steps per second of its forks.
func (fs *forkSet) rate(v *policy.View) (sum float64) {
	for _, g := range fs.gangs {
		sum += v.Rate(fs.job, g)
	}
	return sum
}

// isOn reports whether it has a gang on a node.
func (fs *forkSet) isOn(node int) bool {
	return slices.ContainsFunc(fs.gangs, func(g cluster.Gang) bool {
		return slices.ContainsFunc(g, func(at cluster.Place) bool { return at.Node == node })
	})
}

// placeOrSetAside gives a trial a gang that is free in the plan. For a trial that may be forked the gang is set aside
// until it is known what else the trial gets.
func (al *allocator) placeOrSetAside(of int, j *policy.Job, g cluster.Gang, reason string) bool {
	if !j.MayFork() {
		return al.plan.PlaceOn(j, g, reason)
	}
	if al.forkSets[j] != nil || !al.plan.Free().Fits(g, j.Demand) {
		return false
	}
	al.plan.HoldBack(g, j.Demand)
	al.gather(&forkSet{job: j, index: of, gangs: []cluster.Gang{g}, reason: reason})
	return true
}

// keepOrGather lets a trial continue where it is. A trial that may be forked may still leave to get more gangs.
func (al *allocator) keepOrGather(of int, j *policy.Job, reason string) bool {
	if !j.MayFork() {
		return al.plan.Renew(j, reason)
	}
	if al.plan.Reclaimed(j) && (!al.plan.Free().Fits(j.Held(), j.Demand) || !al.plan.Keep(j)) {
		return false
	}
	al.gather(&forkSet{job: j, index: of, gangs: []cluster.Gang{j.Gang()}, reason: reason, runs: true})
	return true
}

func (al *allocator) gather(c *forkSet) {
	if al.forkSets == nil {
		al.forkSets = map[*policy.Job]*forkSet{}
	}
	al.forkSets[c.job] = c
	al.gathered = append(al.gathered, c)
}

// planForkSets plans the gangs that were set aside, when all gangs have been given.
func (al *allocator) planForkSets(until terms) {
	for _, c := range al.gathered {
		al.planForkSet(c, until)
	}
}

// planForkSet plans a fork set, whose devices have been set aside.
func (al *allocator) planForkSet(c *forkSet, until terms) {
	if c.runs && len(c.gangs) == 1 {
		al.plan.Renew(c.job, c.reason)
		return
	}
	for i, g := range c.gangs {
		if i > 0 || !c.runs {
			al.plan.Free().Release(g, c.job.Demand)
		}
	}
	if len(c.gangs) > 1 {
		al.plan.UntilBy(until.slot)
		placed := al.plan.PlaceForks(c.job, c.gangs, c.reason, divider(al.v))
		al.plan.UntilBy(until.lease)
		if placed {
			return
		}
	}
	al.plan.PlaceOn(c.job, c.gangs[0], c.reason)
}

// disband leaves a trial one gang if it has fewer than its LeastForks, and reports whether that freed any.
func (al *allocator) disband(c *forkSet) bool {
	if len(c.gangs) == 1 || len(c.gangs) >= c.job.LeastForks {
		return false
	}
	best := 0
	for i, g := range c.gangs {
		if !c.runs && al.v.Rate(c.job, g) > al.v.Rate(c.job, c.gangs[best]) {
			best = i
		}
	}
	for i, g := range c.gangs {
		if i != best {
			al.plan.Free().Release(g, c.job.Demand)
			al.shares[c.index].devices -= g.Size()
			al.parts.spend(c.index, -g.Size())
		}
	}
	c.gangs, c.closed = c.gangs[best:best+1], true
	return true
}

// forkWon gives a gang that was won, and that no trial of the sweep can have as its first, to a fork of the trial that
// gains the most time by it.
func (al *allocator) forkWon(w win) bool {
	if w.gang.Machines != 1 {
		return false
	}
	c, g := al.bestFork(w.index, w.gang)
	if c == nil {
		return false
	}
	c.reason = w.reason()
	s := &al.shares[w.index]
	s.won = addToLots(al.v, s.won, g)
	al.addFork(c, g)
	return true
}

// addFork adds a gang to a trial.
func (al *allocator) addFork(c *forkSet, g cluster.Gang) {
	al.plan.HoldBack(g, c.job.Demand)
	c.gangs = append(c.gangs, g)
	al.shares[c.index].devices += g.Size()
	al.parts.spend(c.index, g.Size())
}

// bestFork returns the trial of a sweep that gains the most time by a gang like the given one, and the free place for
// it, or nil if no trial gains. The zero value of like matches any gang.
func (al *allocator) bestFork(of int, like bidder.Gangs) (best *forkSet, where cluster.Gang) {
	most := 0.0
	for _, c := range al.forkCandidates(of) {
		if g, sooner := al.nextFork(c, like); sooner > most {
			best, where, most = c, g, sooner
		}
	}
	if best != nil && al.forkSets[best.job] == nil {
		al.gather(best)
	}
	return best, where
}

// forkCandidates returns the trials of a sweep that could have another fork: those with a place in this round, and
// those that run alone on a lease that has not expired.
func (al *allocator) forkCandidates(of int) (all []*forkSet) {
	a := al.order[of].app
	if a.Forks <= 1 {
		return nil
	}
	for _, j := range a.Jobs {
		c := al.forkSets[j]
		if c == nil && al.supply.isUnforked(j) && !al.v.Draining(j.Held()) {
			c = &forkSet{job: j, index: of, gangs: []cluster.Gang{j.Gang()}, runs: true}
		}
		if c != nil && !c.closed && len(c.gangs) < j.Forks && len(c.gangs[0]) == 1 {
			all = append(all, c)
		}
	}
	return all
}

// nextFork returns a free place on another node for such a gang, and the seconds that the trial would gain by it, which
// are 0 if the fork costs more time than it saves.
func (al *allocator) nextFork(c *forkSet, like bidder.Gangs) (g cluster.Gang, sooner float64) {
	left, have := stepsLeft(al.v, c.job), c.rate(al.v)
	if left < float64(len(c.gangs))+2 { // one step per fork, and the last one, which is not forked
		return nil, 0
	}
	g, rate := al.fastestPlace(c, like)
	switch {
	case rate <= 0:
		return nil, 0
	case have <= 0:
		return g, 1
	}
	then := left / (have + rate)
	if len(c.gangs) == 1 {
		then += al.set.restart // the forks are averaged and the trial restarts
	}
	return g, left/have - then
}

// fastestPlace returns the fastest free place for such a gang on a node where the trial has none, and the rate, or 0
// without a place. Of equally fast places it prefers one whose devices are already free.
func (al *allocator) fastestPlace(c *forkSet, like bidder.Gangs) (best cluster.Gang, fastest float64) {
	free, late := al.plan.Free(), false
	for node := range al.v.Nodes {
		n := &al.v.Nodes[node]
		if like.Node != "" && like.Node != n.Name || like.Rack != "" && like.Rack != n.Rack || c.isOn(node) || !free.Admits(node, c.job.Demand) {
			continue
		}
		for _, kind := range free.Types() {
			g, ok := al.placeAt(node, kind, c.job.Demand, like)
			if !ok {
				continue
			}
			rate, pending := al.v.Rate(c.job, g), al.plan.PendingAny(g)
			if rate > fastest || rate > 0 && rate == fastest && late && !pending {
				best, fastest, late = g, rate, pending
			}
		}
	}
	return best, fastest
}

// placeAt returns a place for such a gang on a node, as large as the trial can use.
func (al *allocator) placeAt(node int, kind string, d cluster.Demand, like bidder.Gangs) (cluster.Gang, bool) {
	if !d.Accepts(kind) || like.Type != "" && like.Type != kind {
		return nil, false
	}
	n := min(max(1, d.Min, d.Max), al.plan.Free().FreeAt(node, kind))
	if like.Devices > 0 {
		n = min(n, like.Devices)
	}
	if n < max(1, d.Min) {
		return nil, false
	}
	return al.plan.Free().PlaceAt(node, d, n, kind)
}

// stepsLeft returns the number of steps until the trial's target.
func stepsLeft(v *policy.View, j *policy.Job) float64 {
	if j.Running() {
		return float64(j.UntilStep) - v.StepAt(j)
	}
	return float64(j.UntilStep - j.StartStep)
}

// distributeForks gives the devices that no trial can have as its first gang to forks: to the sweeps in turns, one gang
// each.
func (al *allocator) distributeForks(turn []int) {
	if !slices.ContainsFunc(turn, func(i int) bool { return al.order[i].app.Forks > 1 }) {
		return
	}
	al.reclaim()
	for len(turn) > 0 && al.plan.Free().FreeDevices() > 0 {
		still := turn[:0:0]
		for _, i := range turn {
			c, g := al.bestFork(i, bidder.Gangs{})
			if c == nil {
				continue
			}
			if c.reason == "" {
				c.reason = leftOver
			}
			s := &al.shares[i]
			s.leftover = addToLots(al.v, s.leftover, g)
			al.addFork(c, g)
			still = append(still, i)
		}
		turn = still
	}
}
