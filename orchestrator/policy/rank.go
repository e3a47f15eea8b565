package policy

import (
	"github.com/outbid-dev/outbid/orchestrator/cluster"
)

// Rank plans jobs in order of priority, in a plan started by Preempt, and moves as few as possible. First it chooses
// the jobs that fit by the number of devices, highest priority first. Chosen jobs that run keep their devices; the
// others are placed in the remaining space, and only if that fails do jobs of lower priority make room on some node.
// The rest goes to running jobs, then to waiting ones, in the same order. want returns the number of devices for a
// waiting job, which gets fewer, but at least its Min, if there are not enough.
func (p *Planner) Rank(order []*Job, want func(*Job) int, reason string) {
	r := &ranking{p: p, order: order, want: want, reason: reason, placed: make([]bool, len(order))}
	chosen := r.choose()
	for i, j := range order {
		if chosen[i] && j.Running() {
			r.placed[i] = p.Keep(j)
		}
	}
	for i, j := range order {
		if chosen[i] && j.Waiting() {
			r.placed[i] = r.placeJob(j) || r.makeRoom(i)
		}
	}
	for i, j := range order {
		if !r.placed[i] && j.Running() {
			r.placed[i] = p.Keep(j)
		}
	}
	var rest []*Job
	for i, j := range order {
		switch {
		case r.placed[i] || j.Ending:
		case chosen[i] && j.Running(): // it made room and must move
			p.Place(j, reason)
		case j.Waiting():
			rest = append(rest, j)
		}
	}
	p.Fill(rest, reason)
}

// roomTries bounds how often a ranking looks for jobs that could make room, because each try scans all nodes.
const roomTries = 32

// ranking is the state of a call of Rank.
type ranking struct {
	p      *Planner
	order  []*Job
	want   func(*Job) int
	reason string
	// placed marks the jobs that have a place.
	placed []bool
	// kept lists, for each node, the indexes in order of the jobs kept there; nil until a job needs room.
	kept  [][]int
	tries int
}

// choose selects the jobs that fit by number, type by type.
func (r *ranking) choose() []bool {
	chosen := make([]bool, len(r.order))
	types := r.p.free.Types()
	left, total := make([]int, len(types)), 0
	for k, kind := range types {
		left[k] = r.p.free.FreeOf(kind)
		total += left[k]
	}
	for i, j := range r.order {
		if total <= 0 {
			break
		}
		switch {
		case j.Ending:
		case j.Running():
			kind, n := cluster.TypeOf(r.p.v.Nodes, j.Gang()), j.Gang().Size()
			chosen[i] = kind == "" && total >= n
			for k := range types {
				if types[k] == kind && left[k] >= n {
					left[k] -= n
					chosen[i] = true
				}
			}
			if chosen[i] {
				total -= n
			}
		case j.Waiting():
			if k, n := roomiest(j.Demand, r.want(j), types, left); k >= 0 {
				left[k] -= n
				total -= n
				chosen[i] = true
			}
		}
	}
	return chosen
}

// roomiest returns the accepted type with the most devices left, if there are at least the demand's Min, and how many
// of up to n devices the job would take. The index is -1 if no type has enough.
func roomiest(d cluster.Demand, n int, types []string, left []int) (kind, take int) {
	kind = -1
	for k := range types {
		if left[k] >= max(1, d.Min) && (kind < 0 || left[k] > left[kind]) && d.Accepts(types[k]) {
			kind = k
		}
	}
	if kind < 0 {
		return -1, 0
	}
	return kind, min(max(n, d.Min), left[kind])
}

// placeJob gives a waiting job as many devices as it wants, or as many as possible.
func (r *ranking) placeJob(j *Job) bool {
	if n := r.want(j); n > j.Demand.Min && n <= j.Demand.Max {
		if g, ok := r.p.free.Place(j.Demand, n, ""); ok {
			return r.p.PlaceOn(j, g, r.reason)
		}
	}
	return r.p.Place(j, r.reason)
}

// makeRoom places a job on the node where it takes the fewest devices from kept jobs of lower priority.
func (r *ranking) makeRoom(rank int) bool {
	if r.tries++; r.tries > roomTries {
		return false
	}
	r.indexKept()
	j := r.order[rank]
	n := max(1, j.Demand.Min)
	bestNode, bestKind, bestCost := -1, "", 0
	for node := range r.kept {
		if r.p.v.Nodes[node].Draining {
			continue
		}
		for _, kind := range r.p.free.Types() {
			if !j.Demand.Accepts(kind) {
				continue
			}
			if cost, ok := r.evictionCost(node, kind, n, rank); ok && (bestNode < 0 || cost < bestCost) {
				bestNode, bestKind, bestCost = node, kind, cost
			}
		}
	}
	return bestNode >= 0 && r.evictAndPlace(bestNode, bestKind, n, rank)
}

// indexKept lists the kept jobs on each node by priority.
func (r *ranking) indexKept() {
	if r.kept != nil {
		return
	}
	r.kept = make([][]int, len(r.p.v.Nodes))
	for i, j := range r.order {
		if r.placed[i] && j.Running() {
			for _, place := range j.Gang() {
				r.kept[place.Node] = append(r.kept[place.Node], i)
			}
		}
	}
}

// evictionCost counts the devices to take from jobs of lower priority so that n are free on a node.
func (r *ranking) evictionCost(node int, kind string, n, rank int) (cost int, ok bool) {
	have := r.p.free.FreeAt(node, kind)
	for at := len(r.kept[node]) - 1; at >= 0 && have < n; at-- {
		i := r.kept[node][at]
		if i < rank {
			break
		}
		if r.placed[i] {
			have += r.devicesHeld(i, node, kind)
			cost += r.order[i].Gang().Size()
		}
	}
	return cost, have >= n
}

// devicesHeld counts the devices of a type that a kept job has on a node.
func (r *ranking) devicesHeld(i, node int, kind string) int {
	n := 0
	for _, place := range r.order[i].Gang() {
		if place.Node != node {
			continue
		}
		for _, d := range place.Devices {
			if r.p.v.Nodes[node].Devices[d].Type == kind {
				n++
			}
		}
	}
	return n
}

// evictAndPlace drops jobs of lower priority until n devices are free on a node, and places the job there. If cores or
// memory do not suffice, nothing changes.
func (r *ranking) evictAndPlace(node int, kind string, n, rank int) bool {
	var gone []int
	try := r.p.Statement()
	for at := len(r.kept[node]) - 1; at >= 0 && r.p.free.FreeAt(node, kind) < n; at-- {
		if i := r.kept[node][at]; r.placed[i] {
			r.p.Drop(r.order[i])
			r.placed[i] = false
			gone = append(gone, i)
		}
	}
	j := r.order[rank]
	if g, ok := r.p.free.PlaceAt(node, j.Demand, n, kind); ok && r.p.PlaceOn(j, g, r.reason) {
		try.Commit()
		return true
	}
	try.Discard()
	for _, i := range gone {
		r.placed[i] = true
	}
	return false
}
