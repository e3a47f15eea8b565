package hived

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
)

// cell is a virtual node: the part of some physical node that is promised to tenants. It is bound to a node while a
// guaranteed job is in it.
type cell struct {
	id    string
	class class
	// parts promised to tenants: one for a whole node, several where the remainders of quotas share a node.
	parts []part
	// node is the index of the node that it is bound to, or -1.
	node int
}

// part is a tenant's part of a cell, in devices, and how many of them guaranteed jobs use.
type part struct {
	tenant       string
	amount, used int
}

// class identifies interchangeable nodes: the same number of devices of one type.
type class struct {
	kind string
	size int
}

// layout is how the cluster is promised to tenants.
type layout struct {
	// sig is the signature of the nodes and tenants that it was made for.
	sig   uint64
	cells []cell
	// byTenant lists a tenant's parts, byID the cells by name, and nodes the nodes of each class.
	byTenant map[string][]partAt
	byID     map[string]int
	nodes    map[class][]int
	// bound is the cell that is bound to each node, or -1.
	bound []int
}

// partAt points to a part of a cell.
type partAt struct{ cell, part int }

// signature hashes nodes, tenants and their weights, which determine the layout.
func signature(nodes []cluster.Node, tenants []string, weights []float64) uint64 {
	h := uint64(14695981039346656037)
	mix := func(text string) {
		for i := range len(text) {
			h = (h ^ uint64(text[i])) * 1099511628211
		}
		h = (h ^ 0xff) * 1099511628211
	}
	for i := range nodes {
		mix(nodes[i].Name)
		if nodes[i].Draining {
			mix("draining")
		}
		for d := range nodes[i].Devices {
			mix(nodes[i].Devices[d].Type)
		}
	}
	for i, t := range tenants {
		mix(t)
		h = (h ^ math.Float64bits(weights[i])) * 1099511628211
	}
	return h
}

// classify groups the nodes whose devices are all of one type. Nodes with several types are left out.
func classify(nodes []cluster.Node) map[class][]int {
	classes := map[class][]int{}
next:
	for i := range nodes {
		devices := nodes[i].Devices
		if nodes[i].Draining || len(devices) == 0 {
			continue
		}
		for d := range devices {
			if devices[d].Type != devices[0].Type {
				continue next
			}
		}
		c := class{devices[0].Type, len(devices)}
		classes[c] = append(classes[c], i)
	}
	return classes
}

// newLayout promises each class of nodes to tenants in proportion to their weights: whole nodes first. The remainder of
// each quota, in whole devices, is packed into the remaining nodes, and reduced if it does not fit.
func newLayout(nodes []cluster.Node, tenants []string, weights []float64) *layout {
	l := &layout{
		sig: signature(nodes, tenants, weights), byTenant: map[string][]partAt{}, byID: map[string]int{}, nodes: classify(nodes),
		bound: make([]int, len(nodes)),
	}
	for i := range l.bound {
		l.bound[i] = -1
	}
	all := 0.0
	for _, w := range weights {
		all += w
	}
	classes := slices.SortedFunc(maps.Keys(l.nodes), func(a, b class) int {
		return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.size, b.size))
	})
	for _, c := range classes {
		count := len(l.nodes[c])
		var rests []part
		left := count
		for n, t := range tenants {
			quota := float64(count) * weights[n] / all
			whole := int(math.Floor(quota + 1e-9))
			left -= whole
			for i := range whole {
				l.add(cell{id: fmt.Sprintf("%s/%d/%s/%d", c.kind, c.size, t, i), class: c, parts: []part{{t, c.size, 0}}})
			}
			if rest := int(math.Floor((quota-float64(whole))*float64(c.size) + 1e-9)); rest > 0 {
				rests = append(rests, part{t, rest, 0})
			}
		}
		for i, parts := range pack(rests, left, c.size) {
			l.add(cell{id: fmt.Sprintf("%s/%d//%d", c.kind, c.size, i), class: c, parts: parts})
		}
	}
	return l
}

func (l *layout) add(c cell) {
	c.node = -1
	for i, p := range c.parts {
		l.byTenant[p.tenant] = append(l.byTenant[p.tenant], partAt{len(l.cells), i})
	}
	l.byID[c.id] = len(l.cells)
	l.cells = append(l.cells, c)
}

// pack packs the remainders into nodes, largest first, each where it fits most tightly.
func pack(rests []part, nodes, size int) [][]part {
	slices.SortStableFunc(rests, func(a, b part) int { return cmp.Compare(b.amount, a.amount) })
	bins, room := make([][]part, nodes), make([]int, nodes)
	for i := range room {
		room[i] = size
	}
	for _, r := range rests {
		best := -1
		for i := range room {
			switch {
			case room[i] == 0:
			case best < 0, room[i] >= r.amount && (room[best] < r.amount || room[i] < room[best]),
				room[best] < r.amount && room[i] > room[best]:
				best = i
			}
		}
		if best >= 0 {
			r.amount = min(r.amount, room[best])
			room[best] -= r.amount
			bins[best] = append(bins[best], r)
		}
	}
	return bins
}

// bind binds a cell to a node.
func (l *layout) bind(cell, node int) {
	l.cells[cell].node = node
	l.bound[node] = cell
}

// useCell adds devices to a tenant's use of a cell by guaranteed jobs, and fails if they were not promised or are not
// free.
func (l *layout) useCell(at partAt, n int) bool {
	p := &l.cells[at.cell].parts[at.part]
	if p.used+n > p.amount {
		return false
	}
	p.used += n
	return true
}

// unbind releases nodes whose cells no longer contain a guaranteed job.
func (l *layout) unbind() {
	for i := range l.cells {
		c := &l.cells[i]
		busy := slices.ContainsFunc(c.parts, func(p part) bool { return p.used > 0 })
		if c.node >= 0 && !busy {
			l.bound[c.node] = -1
			c.node = -1
		}
	}
}

// reset removes all use and every binding.
func (l *layout) reset() {
	for i := range l.cells {
		l.cells[i].node = -1
		for p := range l.cells[i].parts {
			l.cells[i].parts[p].used = 0
		}
	}
	for i := range l.bound {
		l.bound[i] = -1
	}
}

// choose finds parts of a tenant's cells for a gang of n: the tightest that takes it whole, preferring bound cells to
// unbound ones (half of a split node before a new node); for a gang that may spread, the fewest cells of one type.
func (l *layout) choose(tenant string, d cluster.Demand, n int) []hold {
	best, bestRoom := partAt{-1, -1}, 0
	for _, at := range l.byTenant[tenant] {
		c := &l.cells[at.cell]
		room := c.parts[at.part].amount - c.parts[at.part].used
		if room < n || !d.Accepts(c.class.kind) {
			continue
		}
		if c.node < 0 {
			room += 1000 // only if no bound one takes it
		}
		if best.cell < 0 || room < bestRoom {
			best, bestRoom = at, room
		}
	}
	if best.cell >= 0 {
		return []hold{{l.cells[best.cell].id, n}}
	}
	if !d.MultiNode {
		return nil
	}
	return l.chooseMany(tenant, d, n)
}

// chooseMany takes parts of one type, those with the most room first, until the gang is complete.
func (l *layout) chooseMany(tenant string, d cluster.Demand, n int) []hold {
	parts := map[string][]partAt{}
	room := map[string]int{}
	free := func(at partAt) int { p := l.cells[at.cell].parts[at.part]; return p.amount - p.used }
	for _, at := range l.byTenant[tenant] {
		if kind := l.cells[at.cell].class.kind; d.Accepts(kind) && free(at) > 0 {
			parts[kind] = append(parts[kind], at)
			room[kind] += free(at)
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(parts)) {
		if room[kind] < n {
			continue
		}
		slices.SortStableFunc(parts[kind], func(a, b partAt) int { return cmp.Compare(free(b), free(a)) })
		var holds []hold
		for _, at := range parts[kind] {
			take := min(n, free(at))
			holds = append(holds, hold{l.cells[at.cell].id, take})
			if n -= take; n == 0 {
				return holds
			}
		}
	}
	return nil
}

// partOf finds a tenant's part of a cell.
func (l *layout) partOf(id, tenant string) (partAt, bool) {
	c, ok := l.byID[id]
	if !ok {
		return partAt{}, false
	}
	p := slices.IndexFunc(l.cells[c].parts, func(p part) bool { return p.tenant == tenant })
	return partAt{c, p}, p >= 0
}
