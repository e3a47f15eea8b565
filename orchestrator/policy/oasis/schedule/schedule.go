// Package schedule computes OASiS's schedules (Bao et al., "Online Job Scheduling in Distributed Machine Learning
// Clusters", INFOCOM 2018). Each slot of each server has a price that rises as it fills, a job's cheapest schedule for
// each end is computed, and the job is admitted if some end is worth more than it costs.
//
// A job's workers train for whole slots, at most as many at once as it has chunks of data (constraint 3), and Work of
// them in all (constraint 2). Without parameter servers a slot's cost is the sum of its workers' prices, cheapest
// servers first, which is convex in their number. The paper's dynamic program
//
//	cost(end, n) = min over d of cost_slot(end, d) + cost(end-1, n-d)
//
// is then solved by the n cheapest workers of all slots. They are kept in a heap as the end advances, instead of a
// table over every n. If workers differ in speed the heap holds the cheapest by work, which solves the program up to
// one worker. A job with parameter servers uses the table (servers.go).
package schedule

import (
	"cmp"
	"container/heap"
	"math"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/policy/pricing"
)

// Job is a job that arrives.
type Job struct {
	// Arrives is the first slot in which it may train, and Before the first in which it may no longer, or 0 for no
	// limit.
	Arrives, Before int
	// Work is its total work, and Most how many workers it may have in a slot.
	Work float64
	Most int
	// Does returns the work of one of its workers on a server in a slot, 0 where it cannot run; nil means 1 everywhere.
	// Part returns the fraction of a slot that is left, which is also the fraction of the price to pay; nil means whole
	// slots.
	Does func(slot, server int) float64
	Part func(slot int) float64
	// Worker is how much one worker takes of each kind of resource.
	Worker []float64
	// Servers are its parameter servers; nil for none.
	Servers *Servers
	// Utility returns the utility of an end by the number of slots after the arrival. It never rises.
	Utility func(slots int) float64
}

// Needs is constraint 2: the slots of one worker needed for epochs over chunks of mini-batches, with batch slots for
// each mini-batch.
func Needs(epochs, chunks, batches int, batch float64) float64 {
	return math.Ceil(float64(epochs*chunks*batches)*batch - tiny)
}

// tiny is smaller than any relevant work or price.
const tiny = 1e-9

// Prices holds the prices of one unit of each kind of resource: Low on an empty server, High on a full one.
type Prices struct {
	Low, High []float64
}

// Cluster holds the promises of each server in each slot.
type Cluster struct {
	capacity [][]float64
	prices   Prices
	// used by slot, server and kind.
	used [][][]float64
	// servers are for parameter servers; nil for none.
	servers *Cluster
}

// New returns an empty cluster of servers with capacities by kind, over a number of slots.
func New(slots int, capacity [][]float64, prices Prices) *Cluster {
	c := &Cluster{capacity: capacity, prices: prices, used: make([][][]float64, slots)}
	for t := range c.used {
		c.used[t] = make([][]float64, len(capacity))
		for h := range capacity {
			c.used[t][h] = make([]float64, len(capacity[h]))
		}
	}
	return c
}

// SetPrices changes the prices from now on.
func (c *Cluster) SetPrices(p Prices) { c.prices = p }

// Price returns the price of one unit of a kind on a server in a slot: Low * (High/Low)^(used/capacity).
func (c *Cluster) Price(slot, server, kind int) float64 {
	between := pricing.Range{Low: c.prices.Low[kind], High: c.prices.High[kind]}
	return between.Of(c.used[slot][server][kind], c.capacity[server][kind])
}

// Share is a number of workers on a server in a slot.
type Share struct {
	Slot, Server, Workers int
}

// Offer is the answer to a job.
type Offer struct {
	Admitted bool
	// Schedule that ends the job in slot End, and its worth and cost; it is empty if the job cannot be served. Servers
	// is the schedule of its parameter servers.
	Schedule, Servers []Share
	End               int
	Worth, Cost       float64
}

// room is a server in a slot: how many workers fit, the work and price of each, and the price per unit of work.
type room struct {
	slot, server, workers int
	does, price, unit     float64
}

// Offer returns the schedule with the highest payoff, the earliest among equals, without promising it.
func (c *Cluster) Offer(j Job) Offer {
	j.Work = max(tiny, j.Work)
	if j.Servers != nil {
		return c.offerWithServers(j)
	}
	end := len(c.used)
	if j.Before > 0 {
		end = min(end, j.Before)
	}
	bySlot := make([][]room, end)
	for slot := max(0, j.Arrives); slot < end; slot++ {
		bySlot[slot] = c.rooms(slot, j)
	}
	best, found := Offer{}, false
	cheapest(j, bySlot, func(slot int, cost float64) {
		worth := j.Utility(slot - j.Arrives)
		if !found || worth-cost > best.Worth-best.Cost+1e-12 {
			found = true
			best = Offer{End: slot, Worth: worth, Cost: cost}
		}
	})
	if !found {
		return best
	}
	best.Schedule = cheapest(j, bySlot[:best.End+1], func(int, float64) {}).shares()
	best.Admitted = best.Worth > best.Cost
	return best
}

// cheapest goes through the slots and calls each with the cost of ending in that slot, for every slot where the job
// could end. It returns the workers chosen in the last.
func cheapest(j Job, bySlot [][]room, each func(slot int, cost float64)) costliest {
	var chosen costliest
	cost, held := 0.0, 0.0
	for slot, rooms := range bySlot {
		left := j.Most
		for _, r := range rooms {
			if left == 0 || held >= j.Work-tiny && r.unit >= chosen[0].unit {
				break // and so are those that follow
			}
			r.workers = min(r.workers, left)
			left -= r.workers
			heap.Push(&chosen, r)
			held += float64(r.workers) * r.does
			cost += float64(r.workers) * r.price
			for len(chosen) > 0 { // drop the most expensive that are not needed
				top := &chosen[0]
				n := min(top.workers, int((held-j.Work)/top.does+tiny))
				if n <= 0 {
					break
				}
				top.workers -= n
				held -= float64(n) * top.does
				cost -= float64(n) * top.price
				if top.workers == 0 {
					heap.Pop(&chosen)
				}
			}
		}
		if held >= j.Work-tiny {
			each(slot, cost)
		}
	}
	return chosen
}

// rooms lists the servers with room in a slot, the cheapest by work first.
func (c *Cluster) rooms(slot int, j Job) []room {
	part := 1.0
	if j.Part != nil {
		part = j.Part(slot)
	}
	var all []room
	for h := range c.capacity {
		r := room{slot: slot, server: h, workers: j.Most, does: 1}
		if j.Does != nil {
			r.does = j.Does(slot, h)
		}
		if r.does *= part; r.does <= 0 {
			continue
		}
		workers, price := c.room(slot, h, j.Worker)
		r.workers, r.price = min(r.workers, workers), price*part
		if r.unit = r.price / r.does; r.workers > 0 {
			all = append(all, r)
		}
	}
	slices.SortStableFunc(all, func(a, b room) int { return cmp.Compare(a.unit, b.unit) })
	return all
}

// room returns how many units of the given size a server has room for in a slot, and the price of one.
func (c *Cluster) room(slot, server int, each []float64) (n int, price float64) {
	n = math.MaxInt
	for k, w := range each {
		if w > 0 {
			n = min(n, int((c.capacity[server][k]-c.used[slot][server][k])/w+tiny))
			price += w * c.Price(slot, server, k)
		}
	}
	return max(0, n), price
}

// Promise records an admitted schedule, which raises prices.
func (c *Cluster) Promise(worker []float64, schedule []Share) {
	for _, s := range schedule {
		for k, w := range worker {
			c.used[s.Slot][s.Server][k] += w * float64(s.Workers)
		}
	}
}

// Room returns how many more workers a server could hold in a slot.
func (c *Cluster) Room(slot, server int, worker []float64) int {
	n, _ := c.room(slot, server, worker)
	return n
}

// Used returns how much of a kind is promised on a server in a slot.
func (c *Cluster) Used(slot, server, kind int) float64 { return c.used[slot][server][kind] }

// Workers returns the fewest and the most workers at once, over the slots that have some.
func Workers(schedule []Share) (least, most int) {
	bySlot := map[int]int{}
	for _, s := range schedule {
		bySlot[s.Slot] += s.Workers
	}
	least = math.MaxInt
	for _, n := range bySlot {
		least, most = min(least, n), max(most, n)
	}
	return min(least, most), most
}

// costliest is a heap with the most expensive room on top, the latest among equals, so that schedules are early.
type costliest []room

func (d costliest) Len() int { return len(d) }

func (d costliest) Less(a, b int) bool {
	if d[a].unit != d[b].unit {
		return d[a].unit > d[b].unit
	}
	if d[a].slot != d[b].slot {
		return d[a].slot > d[b].slot
	}
	return d[a].server > d[b].server
}

func (d costliest) Swap(a, b int) { d[a], d[b] = d[b], d[a] }

// Push implements heap.Interface.
func (d *costliest) Push(x any) {
	if r, ok := x.(room); ok {
		*d = append(*d, r)
	}
}

// Pop implements heap.Interface.
func (d *costliest) Pop() any {
	last := (*d)[len(*d)-1]
	*d = (*d)[:len(*d)-1]
	return last
}

// shares returns the rooms' shares by slot and server.
func (d costliest) shares() []Share {
	all := make([]Share, len(d))
	for i, r := range d {
		all[i] = Share{r.slot, r.server, r.workers}
	}
	slices.SortFunc(all, func(a, b Share) int {
		return cmp.Or(cmp.Compare(a.Slot, b.Slot), cmp.Compare(a.Server, b.Server))
	})
	return all
}
