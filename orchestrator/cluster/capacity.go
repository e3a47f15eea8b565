package cluster

import (
	"cmp"
	"slices"
)

// Capacity is what is free on a cluster, for planning: Take and Release change it, the cluster itself stays as it is.
type Capacity struct {
	nodes []room
}

// room is what is free on one node.
type room struct {
	node   *Node
	free   map[string][]int // device indexes by type, ascending
	types  []string
	cpus   float64
	memory int64
}

// Use is what a job holds beside its devices.
type Use struct {
	Node   string
	CPUs   float64
	Memory int64
}

// NewCapacity is what is free on the nodes: devices without a holder, and the cores and memory that uses leave.
func NewCapacity(nodes []Node, uses []Use) *Capacity {
	c := &Capacity{nodes: make([]room, len(nodes))}
	for i := range nodes {
		n := &nodes[i]
		r := room{node: n, free: map[string][]int{}, cpus: n.CPUs, memory: n.Memory}
		for _, d := range n.Devices {
			if _, seen := r.free[d.Type]; !seen {
				r.types = append(r.types, d.Type)
				r.free[d.Type] = nil
			}
			if d.Holder == Free {
				r.free[d.Type] = append(r.free[d.Type], d.Index)
			}
		}
		slices.Sort(r.types)
		c.nodes[i] = r
	}
	for _, u := range uses {
		if r := c.room(u.Node); r != nil {
			r.cpus -= u.CPUs
			r.memory -= u.Memory
		}
	}
	return c
}

func (c *Capacity) room(name string) *room {
	i, found := slices.BinarySearchFunc(c.nodes, name, func(r room, name string) int { return cmp.Compare(r.node.Name, name) })
	if !found {
		return nil
	}
	return &c.nodes[i]
}

// FreeDevices counts the devices that nobody holds on nodes that take new jobs.
func (c *Capacity) FreeDevices() int {
	total := 0
	for i := range c.nodes {
		if c.nodes[i].node.Draining {
			continue
		}
		for _, devices := range c.nodes[i].free {
			total += len(devices)
		}
	}
	return total
}

// Slots says how many jobs of the demand could start now, at most limit.
func (c *Capacity) Slots(d Demand, limit int) int {
	total := 0
	for i := range c.nodes {
		r := &c.nodes[i]
		if !r.admits(d) {
			continue
		}
		slots := 0
		for _, t := range r.types {
			if d.Accepts(t) {
				slots += len(r.free[t]) / max(1, d.Min)
			}
		}
		if d.CPUs > 0 && r.node.CPUs > 0 {
			slots = min(slots, int(r.cpus/d.CPUs))
		}
		if d.Memory > 0 && r.node.Memory > 0 {
			slots = min(slots, int(r.memory/d.Memory))
		}
		if total += slots; total >= limit {
			return limit
		}
	}
	return total
}

// admits says whether one job of the demand would find cores, memory and trust on the node.
func (r *room) admits(d Demand) bool {
	return !r.node.Draining && (r.node.Trusted || !d.NeedsTrust) &&
		(d.CPUs <= r.cpus || r.node.CPUs == 0) && (d.Memory <= r.memory || r.node.Memory == 0)
}

// Place finds the best place for a job: the fastest devices; of those, the node that is left with the fewest free
// devices, so that large holes stay for large jobs; of those, the first by name. The job gets as many devices, up to
// its Max, as are free there.
func (c *Capacity) Place(d Demand) (Placement, bool) {
	var best Placement
	bestSpeed, bestLeft := -1.0, 0
	for i := range c.nodes {
		r := &c.nodes[i]
		if !r.admits(d) {
			continue
		}
		for _, t := range r.types {
			free := r.free[t]
			if !d.Accepts(t) || len(free) < max(1, d.Min) {
				continue
			}
			devices := r.pick(free, min(max(1, d.Max), len(free)))
			speed, left := r.speed(devices), len(free)-len(devices)
			if speed > bestSpeed || speed == bestSpeed && left < bestLeft {
				best = Placement{Node: r.node.Name, Type: t, Devices: devices}
				bestSpeed, bestLeft = speed, left
			}
		}
	}
	return best, bestSpeed >= 0
}

// speed is that of the slowest of the devices.
func (r *room) speed(devices []int) float64 {
	slowest := 1.0
	for _, d := range devices {
		if s := r.node.Devices[d].Speed; s > 0 {
			slowest = min(slowest, s)
		}
	}
	return slowest
}

// pick chooses n of the free devices: the fastest, and for several those with the fastest links between them, grown
// greedily from each free device in turn.
func (r *room) pick(free []int, n int) []int {
	sorted := slices.Clone(free)
	slices.SortStableFunc(sorted, func(a, b int) int {
		return cmp.Compare(r.node.Devices[b].Speed, r.node.Devices[a].Speed)
	})
	if n == len(sorted) || n == 1 || len(r.node.Links) == 0 {
		picked := sorted[:n]
		slices.Sort(picked)
		return picked
	}
	var best []int
	bestRank := -1
	for _, start := range sorted {
		group, rank := r.grow(start, sorted, n)
		if rank > bestRank {
			best, bestRank = group, rank
		}
	}
	slices.Sort(best)
	return best
}

// grow adds to a device, one by one, the free device that is linked best to those already chosen.
func (r *room) grow(start int, free []int, n int) (group []int, total int) {
	group = []int{start}
	for len(group) < n {
		next, nextRank := -1, -1
		for _, d := range free {
			if slices.Contains(group, d) {
				continue
			}
			rank := 0
			for _, g := range group {
				rank += r.link(d, g)
			}
			if rank > nextRank {
				next, nextRank = d, rank
			}
		}
		group, total = append(group, next), total+nextRank
	}
	return group, total
}

func (r *room) link(a, b int) int {
	for _, l := range r.node.Links {
		if l.A == a && l.B == b || l.A == b && l.B == a {
			return l.Rank
		}
	}
	return 0
}

// Take removes a placement from what is free; Release gives it back.
func (c *Capacity) Take(p Placement, d Demand) {
	r := c.room(p.Node)
	r.free[p.Type] = slices.DeleteFunc(slices.Clone(r.free[p.Type]), func(i int) bool { return slices.Contains(p.Devices, i) })
	r.cpus -= d.CPUs
	r.memory -= d.Memory
}

// Release undoes a Take.
func (c *Capacity) Release(p Placement, d Demand) {
	r := c.room(p.Node)
	r.free[p.Type] = append(slices.Clone(r.free[p.Type]), p.Devices...)
	slices.Sort(r.free[p.Type])
	r.cpus += d.CPUs
	r.memory += d.Memory
}
