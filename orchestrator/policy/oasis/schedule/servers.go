package schedule

import (
	"cmp"
	"math"
	"slices"
)

// Servers are a job's parameter servers: each slot has enough of them for its workers' bandwidth (constraint 6), and at
// most as many as workers (7). They run on separate servers.
type Servers struct {
	// Each is how much one takes of each kind of resource, and PerWorker the number per worker, at most 1.
	Each      []float64
	PerWorker float64
}

// countFor returns the number of parameter servers for a number of workers.
func (s *Servers) countFor(workers int) int {
	return min(workers, int(math.Ceil(float64(workers)*s.PerWorker-tiny)))
}

// UseServers adds servers for parameter servers, with separate capacities and prices.
func (c *Cluster) UseServers(capacity [][]float64, prices Prices) {
	c.servers = New(len(c.used), capacity, prices)
}

// Servers returns the servers for parameter servers, or nil.
func (c *Cluster) Servers() *Cluster { return c.servers }

// line holds the cost of the first n units in a slot, for every n that fits, and their places.
type line struct {
	cost  []float64
	where []room
}

// line returns the line of workers or parameter servers of the given size, cheapest servers first.
func (c *Cluster) line(slot int, each []float64, most int) line {
	var all []room
	for h := range c.capacity {
		r := room{slot: slot, server: h}
		if r.workers, r.price = c.room(slot, h, each); r.workers > 0 {
			all = append(all, r)
		}
	}
	slices.SortStableFunc(all, func(a, b room) int { return cmp.Compare(a.price, b.price) })
	l := line{cost: []float64{0}}
	for _, r := range all {
		r.workers = min(r.workers, most+1-len(l.cost))
		if r.workers == 0 {
			break
		}
		for range r.workers {
			l.cost = append(l.cost, l.cost[len(l.cost)-1]+r.price)
		}
		l.where = append(l.where, r)
	}
	return l
}

// shares returns the places of the first n units of a line.
func (l *line) shares(n int) []Share {
	var all []Share
	for _, r := range l.where {
		if n == 0 {
			break
		}
		k := min(n, r.workers)
		all, n = append(all, Share{r.slot, r.server, k}), n-k
	}
	return all
}

// offerWithServers is the paper's dynamic program, because the cost of parameter servers is not convex in the number of
// workers. A worker's work is 1 per slot.
func (c *Cluster) offerWithServers(j Job) Offer {
	all := int(math.Ceil(j.Work - tiny))
	least := make([]float64, all+1) // by work done
	for d := range least {
		least[d] = math.Inf(1)
	}
	least[0] = 0
	var choices [][]int32 // by slot: the workers in that slot on the cheapest way to each amount of work
	best, found, reach := Offer{}, false, 0
	for slot := max(0, j.Arrives); slot < len(c.used); slot++ {
		costs := c.withServers(slot, j)
		reach = min(all, reach+len(costs)-1)
		choice := make([]int32, all+1)
		for d := reach; d > 0; d-- { // downwards, so that least still holds the values before the slot
			for n := 1; n < len(costs) && n <= d; n++ {
				if cost := least[d-n] + costs[n]; cost < least[d] {
					least[d], choice[d] = cost, int32(n)
				}
			}
		}
		choices = append(choices, choice)
		if worth := j.Utility(slot - j.Arrives); !math.IsInf(least[all], 1) && (!found || worth-least[all] > best.Worth-best.Cost+1e-12) {
			found = true
			best = Offer{End: slot, Worth: worth, Cost: least[all]}
		}
	}
	if !found {
		return best
	}
	best.Admitted = best.Worth > best.Cost
	for slot, left := best.End, all; left > 0; slot-- {
		n := int(choices[slot-max(0, j.Arrives)][left])
		workers, servers := c.line(slot, j.Worker, n), c.servers.line(slot, j.Servers.Each, n)
		best.Schedule = append(workers.shares(n), best.Schedule...)
		best.Servers = append(servers.shares(j.Servers.countFor(n)), best.Servers...)
		left -= n
	}
	return best
}

// withServers returns the cost of n workers and their parameter servers in a slot, for every n that fits.
func (c *Cluster) withServers(slot int, j Job) []float64 {
	workers := c.line(slot, j.Worker, j.Most)
	servers := c.servers.line(slot, j.Servers.Each, j.Servers.countFor(j.Most))
	for n := range workers.cost {
		z := j.Servers.countFor(n)
		if z >= len(servers.cost) {
			return workers.cost[:n]
		}
		workers.cost[n] += servers.cost[z]
	}
	return workers.cost
}
