package hadar

import (
	"cmp"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
)

// allocation is where a job could run.
type allocation struct {
	gang cluster.Gang
	// own says that it is where it runs already.
	own bool
	// cost of the devices for a round, and payoff: the job's utility less that.
	cost, payoff float64
}

// pool are the free devices of one type on one node.
type pool struct {
	node, kind, free int
	price            float64
}

// find looks for a job's best allocation on what is free (FIND_ALLOC of algorithm 2). Priced, it has a positive payoff;
// otherwise devices cost nothing.
func (r *round) find(e *entry, priced bool) (best allocation, found bool) {
	consider := func(a allocation) {
		if priced && a.payoff <= 0 {
			return
		}
		better := a.payoff > best.payoff
		if r.cheapest && priced {
			better = a.cost < best.cost
		}
		if !found || better {
			best, found = a, true
		}
	}
	if j := e.job; j.Running() && !j.Ending && r.plan.Reclaimed(j) && r.free.IsFree(j.Gang()) {
		consider(r.own(e, priced))
	}
	for last, kind := range e.order {
		kinds := e.order[last : last+1]
		if e.job.Demand.Mixed {
			kinds = e.order[:last+1] // kind is the slowest of them, and sets the pace
		}
		pools := r.pools(e, kinds, priced)
		if !slices.ContainsFunc(pools, func(p pool) bool { return p.kind == kind }) {
			continue // what the faster ones alone can do was looked at before
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

// own is the allocation that a running job has.
func (r *round) own(e *entry, priced bool) allocation {
	a := allocation{gang: e.job.Gang(), own: true}
	for _, place := range a.gang {
		for _, d := range place.Devices {
			if priced {
				a.cost += r.priceOf(place.Node, slices.Index(r.types, r.v.Nodes[place.Node].Devices[d].Type))
			}
		}
	}
	a.payoff = r.utility(e, e.left/max(r.v.Rate(e.job, a.gang), 1e-9)) - a.cost
	return a
}

// priceOf is what a free device of a type costs on a node, as full as it is.
func (r *round) priceOf(node, kind int) float64 {
	capacity := r.capacity[node][kind]
	return r.prices[kind].At(capacity-r.free.FreeAt(node, r.types[kind]), capacity)
}

// pools are the free devices of some types, the cheapest first; of equally cheap ones the larger pools.
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

// sizes are the numbers of devices to try: as many as it asks for, what there is, and its quota leaves, if that is fewer, and the least.
func (r *round) sizes(d cluster.Demand, pools []pool) []int {
	free, quota := 0, r.quota(d)
	for _, p := range pools {
		free += quota.take(p, p.free)
	}
	free = min(free, r.free.AllowanceOfAll(d))
	least := max(1, d.Min)
	if free < least {
		return nil
	}
	return slices.Compact([]int{max(least, min(wants(d), free)), least})
}

// packedTried is how many nodes are looked at closely for a job that runs on one: those where it costs least.
const packedTried = 4

// choices are the devices to take: the cheapest of a node, for the nodes where that costs least, and the cheapest of all if
// the job may spread.
func (r *round) choices(d cluster.Demand, pools []pool, n int) [][]pool {
	room := make([]int, len(r.capacity))
	for _, p := range pools {
		room[p.node] += p.free
	}
	var packed [][]pool
	for node, free := range room {
		if free >= n {
			if parts := take(pools, n, node, r.quota(d)); parts != nil {
				packed = append(packed, parts)
			}
		}
	}
	// Of nodes that cost the same, the one that is left with fewest, so that large holes stay for large jobs.
	slices.SortStableFunc(packed, func(a, b []pool) int {
		return cmp.Or(cmp.Compare(cost(a), cost(b)), cmp.Compare(room[a[0].node], room[b[0].node]))
	})
	all := packed[:min(len(packed), packedTried)]
	if d.MultiNode {
		parts := take(pools, n, -1, r.quota(d)) // the cheapest first, so that a node's pools of two types may have another's between them
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

// quota is what a job's quota leaves of each type, by index; nil for no bound.
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

// take takes up to n devices of a pool as far as the quota leaves them.
func (q quota) take(p pool, n int) int {
	n = min(p.free, n)
	if q != nil {
		n = min(n, q[p.kind])
		q[p.kind] -= n
	}
	return n
}

// take picks the first n devices that the quota leaves, of one node unless that is negative.
func take(pools []pool, n, node int, left quota) []pool {
	var parts []pool
	for _, p := range pools {
		if node >= 0 && p.node != node {
			continue
		}
		if p.free = left.take(p, n); p.free == 0 {
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
	a.payoff = r.utility(e, seconds) - a.cost
	return a, true
}
