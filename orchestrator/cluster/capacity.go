package cluster

import (
	"math"
	"slices"
)

// Capacity is the free part of a cluster, for planning. Take and Release change it, Rollback undoes them, and the
// cluster itself is not affected.
type Capacity struct {
	nodes []Node
	types []string
	rooms []room
	// free is the number of free devices of each type on nodes that accept new jobs; total is their sum.
	free  []int
	total int
	undo  []move
	quotas
}

// room is the free part of a node.
type room struct {
	held []bool
	// kind is the type of each device, and free the number of free devices of each type, as indices in Capacity.types.
	kind   []int
	free   []int
	all    int
	cpus   cores
	memory int64
}

// cores are CPU cores in millionths. They are integers, so that taking and releasing them is exact.
type cores int64

func coresOf(cpus float64) cores { return cores(math.Round(cpus * 1e6)) }

// move is a Take or a Release.
type move struct {
	gang   Gang
	cpus   cores
	memory int64
	quota  int
	take   bool
}

// NewCapacity returns the capacity of nodes without running jobs.
func NewCapacity(nodes []Node) *Capacity {
	c := &Capacity{nodes: nodes, rooms: make([]room, len(nodes))}
	for i := range nodes {
		for _, d := range nodes[i].Devices {
			if !slices.Contains(c.types, d.Type) {
				c.types = append(c.types, d.Type)
			}
		}
	}
	slices.Sort(c.types)
	c.free = make([]int, len(c.types))
	for i := range nodes {
		n := &nodes[i]
		r := &c.rooms[i]
		*r = room{
			held: make([]bool, len(n.Devices)), kind: make([]int, len(n.Devices)), free: make([]int, len(c.types)),
			cpus: coresOf(n.CPUs), memory: n.Memory,
		}
		for d := range n.Devices {
			r.kind[d] = slices.Index(c.types, n.Devices[d].Type)
			c.count(i, d, 1)
		}
	}
	return c
}

// count changes the number of free devices of a device's type.
func (c *Capacity) count(node, device, by int) {
	r := &c.rooms[node]
	r.free[r.kind[device]] += by
	r.all += by
	if !c.nodes[node].Draining {
		c.free[r.kind[device]] += by
		c.total += by
	}
}

// Nodes returns the nodes.
func (c *Capacity) Nodes() []Node { return c.nodes }

// Types returns the device types in the cluster, sorted.
func (c *Capacity) Types() []string { return c.types }

// FreeDevices returns the number of free devices on nodes that accept new jobs.
func (c *Capacity) FreeDevices() int { return c.total }

// FreeOf returns the number of free devices of a type on nodes that accept new jobs.
func (c *Capacity) FreeOf(kind string) int {
	if i := slices.Index(c.types, kind); i >= 0 {
		return c.free[i]
	}
	return 0
}

// FreeAt returns the number of free devices of a type on a node; "" means all types.
func (c *Capacity) FreeAt(node int, kind string) int {
	if kind == "" {
		return c.rooms[node].all
	}
	if i := slices.Index(c.types, kind); i >= 0 {
		return c.rooms[node].free[i]
	}
	return 0
}

// IsFree reports whether every device of a gang is free.
func (c *Capacity) IsFree(g Gang) bool {
	for _, p := range g {
		for _, d := range p.Devices {
			if c.rooms[p.Node].held[d] {
				return false
			}
		}
	}
	return true
}

// Fits reports whether a gang is free, within the demand's quota, and on nodes that meet the demand's other needs.
func (c *Capacity) Fits(g Gang, d Demand) bool {
	for _, p := range g {
		if !c.Admits(p.Node, d) {
			return false
		}
	}
	return c.IsFree(g) && c.Within(g, d)
}

// Take removes a gang from the free devices, which the caller must have checked. Release adds it again.
func (c *Capacity) Take(g Gang, d Demand) {
	c.move(move{g, coresOf(d.CPUs), d.Memory, d.Quota, true}, true)
}

// TakeAll takes gangs, and returns false at the first one that is not free.
func (c *Capacity) TakeAll(gangs []Gang, d Demand) bool {
	for _, g := range gangs {
		if !c.Fits(g, d) {
			return false
		}
		c.Take(g, d)
	}
	return true
}

// FreePart returns the part of a gang that is free.
func (c *Capacity) FreePart(g Gang) Gang {
	part := make(Gang, 0, len(g))
	for _, at := range g {
		var free []int
		for _, d := range at.Devices {
			if c.IsFree(Gang{{Node: at.Node, Devices: []int{d}}}) {
				free = append(free, d)
			}
		}
		part = append(part, Place{Node: at.Node, Devices: free})
	}
	return part
}

// Release undoes a Take.
func (c *Capacity) Release(g Gang, d Demand) {
	c.move(move{g, coresOf(d.CPUs), d.Memory, d.Quota, false}, true)
}

// Mark returns the present state for Rollback.
func (c *Capacity) Mark() int { return len(c.undo) }

// Rollback undoes every Take and Release since the mark.
func (c *Capacity) Rollback(mark int) {
	for i := len(c.undo) - 1; i >= mark; i-- {
		m := c.undo[i]
		m.take = !m.take
		c.move(m, false)
	}
	c.undo = c.undo[:mark]
}

// Commit makes every Take and Release so far final.
func (c *Capacity) Commit() { c.undo = c.undo[:0] }

func (c *Capacity) move(m move, record bool) {
	by := 1
	if m.take {
		by = -1
	}
	for _, p := range m.gang {
		r := &c.rooms[p.Node]
		r.cpus += cores(by) * m.cpus
		r.memory += int64(by) * m.memory
		for _, d := range p.Devices {
			if r.held[d] != m.take {
				r.held[d] = m.take
				c.own(m.quota, r.kind[d], -by)
				c.count(p.Node, d, by)
			}
		}
	}
	if record {
		c.undo = append(c.undo, m)
	}
}

// Admits reports whether a job of the demand may run on the node and finds enough cores, memory and trust there.
func (c *Capacity) Admits(node int, d Demand) bool {
	n, r := &c.nodes[node], &c.rooms[node]
	return !n.Draining && (n.Trusted || !d.NeedsTrust) && !slices.Contains(d.Avoid, n.Name) &&
		(n.CPUs == 0 || coresOf(d.CPUs) <= r.cpus) && (n.Memory == 0 || d.Memory <= r.memory)
}

// Slots returns the number of jobs of the demand that could start now, at most limit. For gangs over several nodes it
// is an estimate.
func (c *Capacity) Slots(d Demand, limit int) int {
	least, total := max(1, d.Min), 0
	var loose []int // devices by type that remain on their nodes
	if d.MultiNode {
		loose = make([]int, len(c.types))
	}
	for i := range c.nodes {
		r := &c.rooms[i]
		if r.all == 0 || !c.Admits(i, d) {
			continue
		}
		slots := 0
		for k, kind := range c.types {
			if !d.Accepts(kind) {
				continue
			}
			if c.Allowance(d, k) < least && !d.Mixed {
				continue
			}
			slots += r.free[k] / least
			if d.MultiNode {
				loose[k] += r.free[k] % least
			}
		}
		if need := coresOf(d.CPUs); need > 0 && c.nodes[i].CPUs > 0 {
			slots = min(slots, int(r.cpus/need))
		}
		if d.Memory > 0 && c.nodes[i].Memory > 0 {
			slots = min(slots, int(r.memory/d.Memory))
		}
		if total += slots; total >= limit {
			return min(limit, c.jobsAllowed(d, least))
		}
	}
	rest := 0
	for _, n := range loose {
		total, rest = total+n/least, rest+n%least
	}
	if d.Mixed {
		total += rest / least
	}
	return min(total, limit, c.jobsAllowed(d, least))
}

// freeDevices returns a node's free devices of a type. If kind is -1, it returns those of all types that the demand
// accepts.
func (c *Capacity) freeDevices(node, kind int, d Demand) []int {
	r := &c.rooms[node]
	var free []int
	for i, held := range r.held {
		if !held && (r.kind[i] == kind || kind < 0 && d.Accepts(c.types[r.kind[i]])) {
			free = append(free, i)
		}
	}
	return free
}
