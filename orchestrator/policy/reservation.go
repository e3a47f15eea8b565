package policy

import (
	"slices"
	"strings"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
)

// NamedGang is a gang by node name, for a policy's state: indexes change when nodes are added or removed.
type NamedGang []NamedPlace

// NamedPlace lists devices of one node.
type NamedPlace struct {
	Node    string
	Devices []int
	// hint is the node's last known index in a view.
	hint int
}

// Named converts a gang of this view to names.
func (v *View) Named(g cluster.Gang) NamedGang {
	named := make(NamedGang, len(g))
	for i, at := range g {
		named[i] = NamedPlace{Node: v.Nodes[at.Node].Name, Devices: slices.Clone(at.Devices), hint: at.Node}
	}
	return named
}

// In finds the gang in a view, and returns false if a node or device is missing.
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

// Draining reports whether a node of a gang accepts no new trials.
func (v *View) Draining(g cluster.Gang) bool {
	return slices.ContainsFunc(g, func(p cluster.Place) bool { return v.Nodes[p.Node].Draining })
}

// Reservation keeps devices for a job over several rounds, until their holder has released them.
type Reservation struct {
	Job  JobName
	Made time.Time
	// Nodes lists the devices by node.
	Nodes NamedGang
}

// Reservations returns the plan's reservations in the form that a policy stores.
func (p *Planner) Reservations() []Reservation {
	var all []Reservation
	for _, r := range p.reserved {
		all = append(all, Reservation{Job: r.Job.Name(), Made: p.v.Now, Nodes: p.v.Named(r.Gang)})
	}
	return all
}

// Claimant returns the job that a reservation is for: the job that it was made for or, if that one runs elsewhere or
// has ended, another waiting job of its sweep that can use the gang. It skips jobs for which taken is true, and returns
// nil if no job is left.
func (r *Reservation) Claimant(v *View, a *App, g cluster.Gang, taken func(*Job) bool) *Job {
	kind := cluster.TypeOf(v.Nodes, g)
	var other *Job
	for _, j := range a.Jobs {
		switch {
		case taken(j):
		case j.Trial == r.Job.Trial:
			// The job, or its last fork, may still be saving; it claims the gang unless it already restarted elsewhere.
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

// Claim is the outcome of claiming a reservation.
type Claim int

// A reservation is Lapsed if its devices can no longer be had, Held while some are still occupied, and Fulfilled when
// they are granted.
const (
	Lapsed Claim = iota
	Held
	Fulfilled
)

// Claim grants a job the gang that was reserved for it, if all of it is free and the job waits. Otherwise it holds back
// the free part while an ending job still occupies the rest. Claims must come before all other decisions of a plan.
func (p *Planner) Claim(j *Job, g cluster.Gang, reason string) Claim {
	if p.free.Fits(g, j.Demand) && j.Waiting() && !p.pending.isAnyPending(g) && p.PlaceOn(j, g, reason) {
		return Fulfilled
	}
	part := p.free.FreePart(g)
	some := part.Size() > 0
	switch {
	case j.Waiting() && p.free.IsFree(g) && !p.endingJobHolds(g, sameNode):
		return Lapsed // cores or memory are no longer available
	case !some && !p.endingJobHolds(g, sameDevice):
		return Lapsed // another job runs there
	}
	p.HoldBack(part, j.Demand)
	return Held
}

// HoldBack keeps later decisions of the plan from using a gang.
func (p *Planner) HoldBack(g cluster.Gang, d cluster.Demand) { p.free.Take(g, d) }

// endingJobHolds reports whether an ending job holds a place that meets a place of the gang.
func (p *Planner) endingJobHolds(g cluster.Gang, meets func(a, b cluster.Place) bool) bool {
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
