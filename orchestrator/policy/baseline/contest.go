package baseline

import (
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/policy"
)

// contest lets waiting jobs take the devices of running ones of lower priority. A running job keeps its place unless a
// job of higher priority finds no other; then jobs of the lowest priority are evicted, and only as many as needed.
type contest struct {
	v *policy.View
	p *policy.Planner
	// victims lists running jobs, first those to evict first. Evicted ones are nil or removed.
	victims     []*policy.Job
	unplaceable policy.Unplaceable
	// reason of grants, and of evictions.
	reason, evicted string
	tries           int
}

// evictTries bounds how many waiting jobs of one decision search for jobs to evict, because each search scans the
// victims.
const evictTries = 64

// admit places a waiting job, on a free place or else on one that victims must leave. before reports whether the job
// has priority over a victim; it must be false for all victims that follow one for which it is false.
func (c *contest) admit(j *policy.Job, before func(victim *policy.Job) bool) bool {
	if c.unplaceable.Covers(j.Demand) {
		return false
	}
	if c.p.Free().FreeDevices() > 0 && c.p.Place(j, c.reason) {
		return true
	}
	if c.tries++; c.tries <= evictTries && (c.evict(j, before, false) || j.Demand.MultiNode && c.evict(j, before, true)) {
		c.unplaceable.Forget()
		return true
	}
	c.unplaceable.Add(j.Demand)
	return false
}

// hopeless reports whether nothing is free and no victim has lower priority.
func (c *contest) hopeless(before func(victim *policy.Job) bool) bool {
	if c.p.Free().FreeDevices() > 0 {
		return false
	}
	for len(c.victims) > 0 && c.victims[0] == nil {
		c.victims = c.victims[1:]
	}
	return len(c.victims) == 0 || !before(c.victims[0])
}

// evict makes room for a job's Min devices, on one node or over several.
func (c *contest) evict(j *policy.Job, before func(*policy.Job) bool, spread bool) bool {
	free := c.p.Free()
	try := c.v.Statement()
	last := 0
	var g cluster.Gang
	found := false
	for last < len(c.victims) && !found {
		x := c.victims[last]
		if x != nil && !before(x) {
			break
		}
		last++
		if x == nil || !c.helps(x, j) {
			continue
		}
		free.Release(x.Gang(), x.Demand)
		if free.FreeDevices() < j.Demand.Min {
			continue
		}
		if spread {
			g, found = free.Place(j.Demand, max(1, j.Demand.Min), "")
			continue
		}
		for _, place := range x.Gang() {
			if g, found = free.PlaceAt(place.Node, j.Demand, max(1, j.Demand.Min), ""); found {
				break
			}
		}
	}
	try.Discard()
	if !found {
		return false
	}
	c.clear(g, j, c.victims[:last])
	return c.p.PlaceOn(j, g, c.reason)
}

// helps reports whether a victim has devices that a job can use.
func (c *contest) helps(x, j *policy.Job) bool {
	for _, place := range x.Gang() {
		for _, d := range place.Devices {
			if j.Demand.Accepts(c.v.Nodes[place.Node].Devices[d].Type) {
				return true
			}
		}
	}
	return false
}

// clear evicts the victims that hold devices of a gang and, if cores or memory are still short, all victims on its
// nodes.
func (c *contest) clear(g cluster.Gang, j *policy.Job, victims []*policy.Job) {
	for i, x := range victims {
		if x != nil && overlap(g, x.Gang(), true) {
			c.p.Evict(x, c.evicted)
			victims[i] = nil
		}
	}
	for i, x := range victims {
		if c.p.Free().Fits(g, j.Demand) {
			return
		}
		if x != nil && overlap(g, x.Gang(), false) {
			c.p.Evict(x, c.evicted)
			victims[i] = nil
		}
	}
}

// overlap reports whether two gangs share a device or, if device is false, a node.
func overlap(a, b cluster.Gang, device bool) bool {
	for _, p := range a {
		for _, q := range b {
			if p.Node == q.Node && (!device || slices.ContainsFunc(p.Devices, func(d int) bool { return slices.Contains(q.Devices, d) })) {
				return true
			}
		}
	}
	return false
}
