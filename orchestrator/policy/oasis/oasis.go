// Package oasis is the admission and the schedules of OASiS (Bao et al., "Online Job Scheduling in Distributed Machine
// Learning Clusters", INFOCOM 2018), as mathematics: each slot of each server has a price that rises as it fills, a job's
// cheapest schedule for each end is found, and the job is admitted if some end is worth more than it costs.
//
// A job's workers train for whole slots, at most as many at once as it has chunks of data (constraint 3), and Needs of them in
// all (constraint 2). Parameter servers are left out: ranks that average among themselves need none. Then a slot's cost is
// the sum of its workers' prices, cheapest servers first, which is convex in their number, and the paper's dynamic program
//
//	cost(end, n) = min over d of cost_slot(end, d) + cost(end-1, n-d)
//
// has the n cheapest workers of all slots as its solution: they are kept in a heap as the end moves on, instead of a table
// over every n.
package oasis

import (
	"cmp"
	"container/heap"
	"fmt"
	"math"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/policy/pricing"
)

// Job is what arrives.
type Job struct {
	// Arrives is the first slot in which it may train.
	Arrives int
	// Needs is how many slots of one worker it takes in all, and Most how many workers it may have in a slot.
	Needs, Most int
	// Worker is what one worker takes of each kind of resource.
	Worker []float64
	// Utility of an end so many slots after the arrival; it never rises.
	Utility func(slots int) float64
}

// Needs is constraint 2: the slots of one worker that so many epochs of chunks of mini-batches take, with tau slots for a
// mini-batch and bytes of gradient each way at so many bytes a slot.
func Needs(epochs, chunks, batches int, tau, gradient, bandwidth float64) int {
	return int(math.Ceil(float64(epochs*chunks*batches) * (tau + 2*gradient/bandwidth)))
}

// Prices of one unit of each kind of resource: Low of an empty server, High of a full one.
type Prices struct {
	Low, High []float64
}

// Cluster is what is promised of each server in each slot.
type Cluster struct {
	capacity [][]float64
	prices   Prices
	// used by slot, server and kind.
	used [][][]float64
}

// New is an empty cluster of servers with capacities by kind, over so many slots.
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

// Price of one unit of a kind on a server in a slot: Low * (High/Low)^(used/capacity).
func (c *Cluster) Price(slot, server, kind int) float64 {
	between := pricing.Range{Low: c.prices.Low[kind], High: c.prices.High[kind]}
	return between.Of(c.used[slot][server][kind], c.capacity[server][kind])
}

// Share is some workers on a server in a slot.
type Share struct {
	Slot, Server, Workers int
}

// Offer is the answer to a job.
type Offer struct {
	Admitted bool
	// Schedule in which the job ends in slot End, what that is worth and costs; none if it cannot be served.
	Schedule    []Share
	End         int
	Worth, Cost float64
	// Reason in words.
	Reason string
}

// room is a server in a slot: how many workers it could take, and the price of each.
type room struct {
	slot, server, workers int
	price                 float64
}

// Offer finds the schedule of the highest payoff, and promises nothing yet. Of equal ones it is that with the earliest end.
func (c *Cluster) Offer(j Job) Offer {
	j.Needs = max(1, j.Needs)
	bySlot := make([][]room, len(c.used))
	for slot := max(0, j.Arrives); slot < len(c.used); slot++ {
		bySlot[slot] = c.rooms(slot, j)
	}
	best, found := Offer{Reason: "not admitted: it cannot end in time, whatever it pays"}, false
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
	if best.Admitted {
		least, most := best.workers()
		best.Reason = fmt.Sprintf("admitted: %d to %d workers from slot %d, ends in slot %d, payoff %.4g",
			least, most, best.Schedule[0].Slot, best.End, best.Worth-best.Cost)
	} else {
		best.Reason = fmt.Sprintf("not admitted: would cost %.4g and be worth %.4g", best.Cost, best.Worth)
	}
	return best
}

// cheapest goes through the slots, tells what the job would cost if it had ended by each in which it could have, and
// returns the workers that it would have then.
func cheapest(j Job, bySlot [][]room, each func(slot int, cost float64)) dearest {
	var chosen dearest
	cost, held := 0.0, 0
	for slot, rooms := range bySlot {
		left := j.Most
		for _, r := range rooms {
			if left == 0 || held == j.Needs && r.price >= chosen[0].price {
				break // so are those that follow
			}
			r.workers = min(r.workers, left)
			left -= r.workers
			heap.Push(&chosen, r)
			held += r.workers
			cost += float64(r.workers) * r.price
			for held > j.Needs { // the dearest are not needed
				top := &chosen[0]
				n := min(top.workers, held-j.Needs)
				top.workers -= n
				held -= n
				cost -= float64(n) * top.price
				if top.workers == 0 {
					heap.Pop(&chosen)
				}
			}
		}
		if held == j.Needs {
			each(slot, cost)
		}
	}
	return chosen
}

// rooms are the servers with room in a slot, the cheapest first.
func (c *Cluster) rooms(slot int, j Job) []room {
	var all []room
	for h := range c.capacity {
		r := room{slot: slot, server: h, workers: j.Most}
		for k, w := range j.Worker {
			if w <= 0 {
				continue
			}
			r.workers = min(r.workers, int((c.capacity[h][k]-c.used[slot][h][k])/w+1e-9))
			r.price += w * c.Price(slot, h, k)
		}
		if r.workers > 0 {
			all = append(all, r)
		}
	}
	slices.SortStableFunc(all, func(a, b room) int { return cmp.Compare(a.price, b.price) })
	return all
}

// Promise raises what is used, and so prices, by a schedule that was admitted.
func (c *Cluster) Promise(j Job, o Offer) {
	for _, s := range o.Schedule {
		for k, w := range j.Worker {
			c.used[s.Slot][s.Server][k] += w * float64(s.Workers)
		}
	}
}

// workers are the fewest and most at once, over the slots that have some.
func (o *Offer) workers() (least, most int) {
	bySlot := map[int]int{}
	for _, s := range o.Schedule {
		bySlot[s.Slot] += s.Workers
	}
	least = math.MaxInt
	for _, n := range bySlot {
		least, most = min(least, n), max(most, n)
	}
	return least, most
}

// dearest is a heap of rooms, the dearest on top; of equals the latest, so that schedules are early.
type dearest []room

func (d dearest) Len() int { return len(d) }

func (d dearest) Less(a, b int) bool {
	if d[a].price != d[b].price {
		return d[a].price > d[b].price
	}
	if d[a].slot != d[b].slot {
		return d[a].slot > d[b].slot
	}
	return d[a].server > d[b].server
}

func (d dearest) Swap(a, b int) { d[a], d[b] = d[b], d[a] }

// Push implements heap.Interface.
func (d *dearest) Push(x any) {
	if r, ok := x.(room); ok {
		*d = append(*d, r)
	}
}

// Pop implements heap.Interface.
func (d *dearest) Pop() any {
	last := (*d)[len(*d)-1]
	*d = (*d)[:len(*d)-1]
	return last
}

// shares by slot and server.
func (d dearest) shares() []Share {
	all := make([]Share, len(d))
	for i, r := range d {
		all[i] = Share{r.slot, r.server, r.workers}
	}
	slices.SortFunc(all, func(a, b Share) int {
		return cmp.Or(cmp.Compare(a.Slot, b.Slot), cmp.Compare(a.Server, b.Server))
	})
	return all
}
