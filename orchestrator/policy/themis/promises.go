package themis

import (
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/policy"
)

// fulfil grants devices that were kept for jobs and are free now, and goes on keeping the others.
func (r *round) fulfil() {
	if len(r.p.Promises) == 0 {
		return
	}
	r.kept = map[*policy.Job]cluster.Gang{}
	apps := map[string]*policy.App{}
	for _, a := range r.v.Apps {
		apps[a.ID] = a
	}
	nodes := map[string]int{}
	for i := range r.v.Nodes {
		nodes[r.v.Nodes[i].Name] = i
	}
	open := r.p.Promises
	r.p.Promises = nil
	for _, made := range open {
		a := apps[made.Job.App]
		if a == nil || a.Paused || r.v.Now.Sub(made.Made) >= r.p.set.lease {
			continue
		}
		g, ok := r.locate(made, nodes)
		if !ok {
			continue
		}
		if j := r.heir(a, made, g); j != nil && r.keep(j, g, made) {
			r.p.Promises = append(r.p.Promises, made)
		}
	}
}

// locate finds the devices of a promise in the view.
func (r *round) locate(made promise, nodes map[string]int) (cluster.Gang, bool) {
	var g cluster.Gang
	for _, n := range made.Nodes {
		i, ok := nodes[n.Node]
		if !ok || r.v.Nodes[i].Draining || len(r.v.Nodes[i].Devices) <= n.Devices[len(n.Devices)-1] {
			return nil, false
		}
		g = append(g, cluster.Place{Node: i, Devices: n.Devices})
	}
	return g, true
}

// heir is the job that a promise was made to or, if that wants nothing any more, another of the app that could use the
// gang.
func (r *round) heir(a *policy.App, made promise, g cluster.Gang) *policy.Job {
	kind := cluster.TypeOf(r.v.Nodes, g)
	var other *policy.Job
	for _, j := range a.Jobs {
		_, served := r.kept[j]
		switch {
		case served:
		case j.Trial == made.Job.Trial:
			// It may still be saving; unless it went on somewhere else, it comes.
			if !j.Running() || j.Ending {
				return j
			}
		case other == nil && j.Waiting() && g.Size() >= j.Demand.Min && g.Size() <= j.Demand.Max &&
			(len(g) == 1 || j.Demand.Spread) && j.Demand.Accepts(kind):
			other = j
		}
	}
	return other
}

// keep grants the gang if all of it is free. Otherwise it takes what is, and says that the promise still stands.
func (r *round) keep(j *policy.Job, g cluster.Gang, made promise) bool {
	if r.v.Free.Fits(g, j.Demand) && j.Waiting() {
		g = clone(g)
		r.v.Free.Take(g, j.Demand)
		r.kept[j] = g
		r.plan.Grants = append(r.plan.Grants, policy.Grant{
			Job: j, Gang: g, TermEnd: r.term, Reason: "won in an auction, and free now",
		})
		return false
	}
	part, some := make(cluster.Gang, 0, len(g)), false
	for _, p := range g {
		var free []int
		for _, d := range p.Devices {
			if r.v.Free.IsFree(cluster.Gang{{Node: p.Node, Devices: []int{d}}}) {
				free = append(free, d)
			}
		}
		some = some || len(free) > 0
		part = append(part, cluster.Place{Node: p.Node, Devices: free})
	}
	switch {
	case j.Waiting() && r.v.Free.IsFree(g) && !r.leaving(g, sameNode):
		return false // there are no cores or memory for it any more
	case !some && !r.leaving(g, sameDevice):
		return false // somebody else runs there
	}
	r.v.Free.Take(part, j.Demand)
	r.kept[j] = g
	return true
}

// leaving says whether some job that is ending holds a place that meets one of the gang's.
func (r *round) leaving(g cluster.Gang, meets func(a, b cluster.Place) bool) bool {
	for _, a := range r.v.Apps {
		for _, j := range a.Jobs {
			if !j.Ending {
				continue
			}
			for _, p := range j.Gang {
				if slices.ContainsFunc(g, func(q cluster.Place) bool { return meets(p, q) }) {
					return true
				}
			}
		}
	}
	return false
}

func sameNode(a, b cluster.Place) bool { return a.Node == b.Node }

func sameDevice(a, b cluster.Place) bool {
	return a.Node == b.Node && slices.ContainsFunc(a.Devices, func(d int) bool { return slices.Contains(b.Devices, d) })
}

func clone(g cluster.Gang) cluster.Gang {
	out := make(cluster.Gang, len(g))
	for i, p := range g {
		out[i] = cluster.Place{Node: p.Node, Devices: slices.Clone(p.Devices)}
	}
	return out
}
