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
		if j := r.heir(a, made, g); j != nil && r.keep(j, g) {
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

// keep grants the gang if all of it is free, and says whether the promise still stands.
func (r *round) keep(j *policy.Job, g cluster.Gang) bool {
	g = clone(g)
	switch r.planner.Claim(j, g, "won in an auction, and free now") {
	case policy.Fulfilled:
		r.kept[j] = g
		return false
	case policy.Held:
		r.kept[j] = g
		return true
	default:
		return false
	}
}

func clone(g cluster.Gang) cluster.Gang {
	out := make(cluster.Gang, len(g))
	for i, p := range g {
		out[i] = cluster.Place{Node: p.Node, Devices: slices.Clone(p.Devices)}
	}
	return out
}
