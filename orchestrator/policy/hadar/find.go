package hadar

import (
	"cmp"
	"math"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
)

// allocation is a possible placement of a job.
type allocation struct {
	gang cluster.Gang
	// own means that the job already runs there.
	own bool
	// cost of the devices, for a round or by Variant.Charge until the job ends, and payoff: the job's utility minus it.
	cost, payoff float64
}

// pool holds the free devices of one type on one node.
type pool struct {
	node, kind, free int
	price            float64
}

// find returns a job's best allocation on the free devices (FIND_ALLOC of algorithm 2). If priced, its payoff must be
// positive; otherwise devices cost nothing.
func (r *round) find(e *entry, priced bool) (best allocation, found bool) {
	consider := func(a allocation) {
		if priced && a.payoff <= 0 {
			return
		}
		better := a.payoff > best.payoff
		if r.Cheapest && priced {
			better = a.cost < best.cost
		}
		if !found || better {
			best, found = a, true
		}
	}
	if j := e.job; j.Running() && !j.Ending && r.plan.Reclaimed(j) && r.free.IsFree(j.Gang()) {
		consider(r.currentAllocation(e, priced))
	}
	for last, kind := range e.order {
		kinds := e.order[last : last+1]
		if e.job.Demand.Mixed {
			kinds = e.order[:last+1] // kind is the slowest of them and sets the pace
		}
		pools := r.pools(e, kinds, priced)
		if !slices.ContainsFunc(pools, func(p pool) bool { return p.kind == kind }) {
			continue // the faster types alone have been considered already
		}
		for _, n := range r.sizes(e.job.Demand, pools) {
			for _, parts := range r.choices(e.job.Demand, pools, n) {
				if a, ok := r.allocate(e, parts); ok {
					consider(a)
				}
			}
		}
	}
	return best, found
}

// currentAllocation returns the current allocation of a running job.
func (r *round) currentAllocation(e *entry, priced bool) allocation {
	a := allocation{gang: e.job.Gang(), own: true}
	for _, place := range a.gang {
		for _, d := range place.Devices {
			if priced {
				a.cost += r.priceOf(place.Node, slices.Index(r.types, r.v.Nodes[place.Node].Devices[d].Type))
			}
		}
	}
	r.settle(e, &a, e.left/max(r.v.Rate(e.job, a.gang), 1e-9))
	return a
}

// settle completes the cost and payoff of an allocation, whose cost is that of a round, if the job ends in the given
// number of seconds.
func (r *round) settle(e *entry, a *allocation, seconds float64) {
	if r.Charge {
		a.cost *= max(1, math.Ceil(seconds/r.Policy.round.Seconds()))
	}
	a.payoff = r.utility(e, seconds) - a.cost
}

// priceOf returns the price of a free device of a type on a node at its present load.
func (r *round) priceOf(node, kind int) float64 {
	capacity := r.capacity[node][kind]
	return r.prices[kind].At(capacity-r.free.FreeAt(node, r.types[kind]), capacity)
}

// pools returns the free devices of some types, cheapest first and larger pools first among equally cheap ones.
func (r *round) pools(e *entry, kinds []int, priced bool) []pool {
	var pools []pool
	for node := range r.capacity {
		for _, k := range kinds {
			n := r.free.FreeAt(node, r.types[k])
			if n == 0 || !r.free.Admits(node, e.job.Demand) {
				continue
			}
			p := pool{node: node, kind: k, free: n}
			if priced {
				p.price = r.priceOf(node, k)
			}
			pools = append(pools, p)
		}
	}
	slices.SortStableFunc(pools, func(a, b pool) int {
		return cmp.Or(cmp.Compare(a.price, b.price), cmp.Compare(b.free, a.free))
	})
	return pools
}

// sizes returns the numbers of devices to try: as many as the job asks for, as many as are free and within its quota if
// that is fewer, and its minimum.
func (r *round) sizes(d cluster.Demand, pools []pool) []int {
	free, quota := 0, r.quota(d)
	for _, p := range pools {
		free += quota.takeFrom(p, p.free)
	}
	free = min(free, r.free.AllowanceOfAll(d))
	least := max(1, d.Min)
	if free < least {
		return nil
	}
	return slices.Compact([]int{max(least, min(wants(d), free)), least})
}

// packedTried is the number of nodes considered for a job that runs on one node: the cheapest ones.
const packedTried = 4

// choices returns the devices to consider: the cheapest on one node, for the nodes where that costs least, and the
// cheapest on all nodes if the job may spread.
func (r *round) choices(d cluster.Demand, pools []pool, n int) [][]pool {
	room := make([]int, len(r.capacity))
	for _, p := range pools {
		room[p.node] += p.free
	}
	var packed [][]pool
	for node, free := range room {
		if free >= n {
			if parts := takeCheapest(pools, n, node, r.quota(d)); parts != nil {
				packed = append(packed, parts)
			}
		}
	}
	// Of nodes with equal cost prefer the fullest, so that large free places remain for large jobs.
	slices.SortStableFunc(packed, func(a, b []pool) int {
		return cmp.Or(cmp.Compare(cost(a), cost(b)), cmp.Compare(room[a[0].node], room[b[0].node]))
	})
	all := packed[:min(len(packed), packedTried)]
	if d.MultiNode {
		parts := takeCheapest(pools, n, -1, r.quota(d)) // cheapest first, so pools of one node need not be adjacent
		if slices.ContainsFunc(parts, func(p pool) bool { return p.node != parts[0].node }) {
			all = append(all, parts)
		}
	}
	return all
}

func cost(parts []pool) float64 {
	sum := 0.0
	for _, p := range parts {
		sum += p.price * float64(p.free)
	}
	return sum
}

// quota is the remaining allowance of a job's quota by type index, or nil for no bound.
type quota []int

func (r *round) quota(d cluster.Demand) quota {
	if d.Quota == 0 {
		return nil
	}
	left := make(quota, len(r.types))
	for kind := range left {
		left[kind] = r.free.Allowance(d, kind)
	}
	return left
}

// takeFrom takes up to n devices of a pool within the quota.
func (q quota) takeFrom(p pool, n int) int {
	n = min(p.free, n)
	if q != nil {
		n = min(n, q[p.kind])
		q[p.kind] -= n
	}
	return n
}

// takeCheapest picks the first n devices within the quota, from one node unless node is negative.
func takeCheapest(pools []pool, n, node int, left quota) []pool {
	var parts []pool
	for _, p := range pools {
		if node >= 0 && p.node != node {
			continue
		}
		if p.free = left.takeFrom(p, n); p.free == 0 {
			continue
		}
		parts = append(parts, p)
		if n -= p.free; n == 0 {
			return parts
		}
	}
	return nil
}

// allocate picks the devices of an allocation.
func (r *round) allocate(e *entry, parts []pool) (a allocation, ok bool) {
	slices.SortStableFunc(parts, func(a, b pool) int { return cmp.Compare(a.node, b.node) })
	a.cost = cost(parts)
	for _, p := range parts {
		g, ok := r.free.PlaceAt(p.node, e.job.Demand, p.free, r.types[p.kind])
		if !ok {
			return a, false
		}
		if last := len(a.gang) - 1; last >= 0 && a.gang[last].Node == p.node {
			a.gang[last].Devices = append(a.gang[last].Devices, g[0].Devices...)
			slices.Sort(a.gang[last].Devices)
			continue
		}
		a.gang = append(a.gang, g...)
	}
	seconds := e.left / max(r.v.Rate(e.job, a.gang), 1e-9)
	if e.job.Step > 0 || e.job.Running() {
		seconds += r.restart
	}
	r.settle(e, &a, seconds)
	return a, true
}
