package policy

import (
	"slices"
	"strings"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
)

// NamedGang is a gang by the names of its nodes, for the memory of a policy: indexes change when nodes come and go.
type NamedGang []NamedPlace

// NamedPlace is the devices of one node.
type NamedPlace struct {
	Node    string
	Devices []int
	// hint is where in the view the node was last.
	hint int
}

// Named is a gang of this view by names.
func (v *View) Named(g cluster.Gang) NamedGang {
	named := make(NamedGang, len(g))
	for i, at := range g {
		named[i] = NamedPlace{Node: v.Nodes[at.Node].Name, Devices: slices.Clone(at.Devices), hint: at.Node}
	}
	return named
}

// In finds the gang in a view; false if some node or device is not there any more.
func (n NamedGang) In(v *View) (cluster.Gang, bool) {
	g := make(cluster.Gang, len(n))
	for i := range n {
		at := &n[i]
		if at.hint >= len(v.Nodes) || v.Nodes[at.hint].Name != at.Node {
			k, found := slices.BinarySearchFunc(v.Nodes, at.Node, func(n cluster.Node, name string) int {
				return strings.Compare(n.Name, name)
			})
			if !found {
				return nil, false
			}
			at.hint = k
		}
		if at.Devices[len(at.Devices)-1] >= len(v.Nodes[at.hint].Devices) {
			return nil, false
		}
		g[i] = cluster.Place{Node: at.hint, Devices: at.Devices}
	}
	return g, true
}

// Draining says whether some node of a gang takes no new jobs.
func (v *View) Draining(g cluster.Gang) bool {
	return slices.ContainsFunc(g, func(p cluster.Place) bool { return v.Nodes[p.Node].Draining })
}

// Reservation keeps devices for a job from one decision to the next, until whoever holds them has left.
type Reservation struct {
	Job  JobName
	Made time.Time
	// Nodes are the devices, by node.
	Nodes NamedGang
}

// Reservations is what the plan reserved, as a policy remembers it.
func (p *Planner) Reservations() []Reservation {
	var all []Reservation
	for _, r := range p.reserved {
		all = append(all, Reservation{Job: r.Job.Name(), Made: p.v.Now, Nodes: p.v.Named(r.Gang)})
	}
	return all
}

// Claimant is the job that a reservation is for: the one that it was made for or, if that runs somewhere else or is gone,
// another of its app that waits and could use the gang. Those that are taken do not count. nil if there is none.
func (r *Reservation) Claimant(v *View, a *App, g cluster.Gang, taken func(*Job) bool) *Job {
	kind := cluster.TypeOf(v.Nodes, g)
	var other *Job
	for _, j := range a.Jobs {
		switch {
		case taken(j):
		case j.Trial == r.Job.Trial:
			// It, or the last of its forks, may still be saving; unless it went on somewhere else, it comes.
			if !j.Running() || j.Ending || j.Forked {
				return j
			}
		case other == nil && j.Waiting() && g.Size() >= j.Demand.Min && g.Size() <= j.Demand.Max &&
			(len(g) == 1 || j.Demand.MultiNode) && j.Demand.Accepts(kind):
			other = j
		}
	}
	return other
}

// Claim is what became of a reservation.
type Claim int

// Claims: the devices are granted now; they are still held back; nobody can have them any more.
const (
	Lapsed Claim = iota
	Held
	Fulfilled
)

// Claim grants a job the gang that was reserved for it, if all of it is free and the job waits. Otherwise it holds back
// what is free, as long as somebody who is about to leave stands in the way. Claims come before all else in a plan.
func (p *Planner) Claim(j *Job, g cluster.Gang, reason string) Claim {
	if p.free.Fits(g, j.Demand) && j.Waiting() && !p.pending.anyOf(g) && p.PlaceOn(j, g, reason) {
		return Fulfilled
	}
	part := p.freeOf(g)
	some := part.Size() > 0
	switch {
	case j.Waiting() && p.free.IsFree(g) && !p.leaving(g, sameNode):
		return Lapsed // there are no cores or memory for it any more
	case !some && !p.leaving(g, sameDevice):
		return Lapsed // somebody else runs there
	}
	p.HoldBack(part, j.Demand)
	return Held
}

// HoldBack keeps a gang from whoever comes later in the plan.
func (p *Planner) HoldBack(g cluster.Gang, d cluster.Demand) { p.free.Take(g, d) }

// leaving says whether some job that is ending holds a place that meets one of the gang's.
func (p *Planner) leaving(g cluster.Gang, meets func(a, b cluster.Place) bool) bool {
	for _, a := range p.v.Apps {
		for _, j := range a.Jobs {
			if !j.Ending {
				continue
			}
			for _, at := range j.Held() {
				if slices.ContainsFunc(g, func(o cluster.Place) bool { return meets(at, o) }) {
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
