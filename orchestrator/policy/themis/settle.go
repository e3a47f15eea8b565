package themis

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/agent"
	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// won is one gang that a bidder won and has still to be given.
type won struct {
	b    *bidder
	gang agent.Gangs
}

// settle gives the bidders what they won, the largest gangs first: what divides evenly fits the machines, and small gangs
// that go on where they are do not break up the places that large ones need. A gang that fits nowhere any more is left over.
func (r *round) settle(asked []*bidder) {
	var open []won
	for _, b := range asked {
		for _, g := range b.gangs {
			open = append(open, won{b, g})
		}
	}
	slices.SortStableFunc(open, func(a, b won) int {
		return cmp.Or(cmp.Compare(b.gang.Devices, a.gang.Devices), cmp.Compare(b.gang.Machines, a.gang.Machines))
	})
	for _, w := range open {
		if !r.extend(w) {
			r.deliver(w)
		}
	}
}

// extend lets a job go on that holds a gang as it was won, if there is one.
func (r *round) extend(w won) bool {
	c := r.claim(w.b.app)
	for _, j := range c.jobs {
		if !r.lost[j] || !r.alike(j, w.gang) || !r.renew(j, w.b.reason()) {
			continue
		}
		c.served(j)
		r.book(&c.won, j.Gang)
		r.book(&c.extended, j.Gang)
		c.devices += j.Gang.Size()
		return true
	}
	return false
}

func (b *bidder) reason() string {
	return fmt.Sprintf("won in the auction: rho %.3g with its row, %.3g with nothing; keeps %.0f%% of the row",
		b.table.Rows[b.row].Rho, b.table.Rho, 100*b.keeps)
}

// alike says whether what a job holds is a gang as it was won.
func (r *round) alike(j *policy.Job, g agent.Gangs) bool {
	if j.Gang.Size() != g.Size() || len(j.Gang) > g.Machines || cluster.TypeOf(r.v.Nodes, j.Gang) != g.Type {
		return false
	}
	for _, p := range j.Gang {
		n := &r.v.Nodes[p.Node]
		if g.Node != "" && g.Node != n.Name || g.Rack != "" && g.Rack != n.Rack {
			return false
		}
	}
	return true
}

// deliver finds a job and a place for a gang that was won.
func (r *round) deliver(w won) {
	c := r.claim(w.b.app)
	i := slices.IndexFunc(c.jobs, func(j *policy.Job) bool {
		return j.Demand.Min <= w.gang.Size() && j.Demand.Accepts(w.gang.Type) && (w.gang.Machines == 1 || j.Demand.Spread)
	})
	if i < 0 {
		return
	}
	j := c.jobs[i]
	n := min(w.gang.Size(), max(j.Demand.Min, j.Demand.Max))
	g, ok := r.locateWon(w.gang, j.Demand, n)
	if !ok {
		return
	}
	r.give(j, g, w.b.table.Rows[w.b.row].Rho, w.b.reason())
	c.served(j)
	c.devices += g.Size()
	r.book(&c.won, g)
}

// locateWon finds a gang's place: on the node that it names, on one machine if it is for one, otherwise wherever there is
// room.
func (r *round) locateWon(g agent.Gangs, d cluster.Demand, n int) (cluster.Gang, bool) {
	if g.Node != "" {
		for i := range r.v.Nodes {
			if r.v.Nodes[i].Name != g.Node {
				continue
			}
			if at, ok := r.v.Free.PlaceAt(i, d, n, g.Type); ok || r.released {
				return at, ok
			}
			r.release()
			return r.v.Free.PlaceAt(i, d, n, g.Type)
		}
		return nil, false
	}
	if g.Machines == 1 {
		return r.together(d, n, max(1, d.Min), g.Type)
	}
	return r.place(d, n, g.Type)
}

// together finds n devices on one machine or, if there is none with so many, half as many and so on down to least; over
// several machines only if there is no room for the least on any.
func (r *round) together(d cluster.Demand, n, least int, kind string) (cluster.Gang, bool) {
	alone := d
	alone.Spread = false
	for ; ; n = max(least, n/2) {
		if g, ok := r.place(alone, n, kind); ok {
			return g, true
		}
		if n <= least {
			break
		}
	}
	if !d.Spread {
		return nil, false
	}
	return r.place(d, least, kind)
}

// leftovers gives what is left, gang by gang in turns: to apps that were not asked, in random order, then to anyone, the
// worst off first.
func (r *round) leftovers() {
	var unasked, asked []*bidder
	for _, b := range r.bidders {
		if b.asked {
			asked = append(asked, b)
		} else {
			unasked = append(unasked, b)
		}
	}
	if r.p.set.leftover != "worst" {
		r.p.rng.Shuffle(len(unasked), func(i, k int) { unasked[i], unasked[k] = unasked[k], unasked[i] })
	}
	if r.p.set.leftover == "keep" {
		for _, b := range unasked {
			for r.renewOne(b) {
			}
		}
	}
	r.share(unasked)
	r.share(asked)
}

// share gives to each in turn until nobody can take more.
func (r *round) share(turn []*bidder) {
	wanting := 0
	for _, b := range turn {
		wanting += len(r.claim(b.app).jobs)
	}
	if wanting == 0 {
		return
	}
	each := (r.v.Free.FreeDevices() + r.onOffer()) / wanting
	var unplaceable policy.Unplaceable
	for len(turn) > 0 {
		still := turn[:0:0]
		for _, b := range turn {
			if r.v.Free.FreeDevices() == 0 && (r.released || len(r.lost) == 0) {
				return
			}
			if r.takeOne(b, each, &unplaceable) {
				still = append(still, b)
			}
		}
		turn = still
	}
}

// onOffer counts the devices on leases that are up and not in the free capacity yet.
func (r *round) onOffer() int {
	if r.released {
		return 0
	}
	n := 0
	for j := range r.lost {
		n += j.Gang.Size()
	}
	return n
}

// takeOne gives one job of an app its own devices back, or another a gang.
func (r *round) takeOne(b *bidder, each int, unplaceable *policy.Unplaceable) bool {
	if r.renewOne(b) {
		return true
	}
	c := r.claim(b.app)
	for _, j := range c.jobs {
		if j.Running() || unplaceable.Covers(j.Demand) {
			continue
		}
		least := max(1, j.Demand.Min)
		n := min(max(least, each), max(least, j.Demand.Max))
		g, ok := r.together(j.Demand, n, least, "")
		if !ok {
			unplaceable.Add(j.Demand)
			continue
		}
		r.give(j, g, b.rho, leftOver)
		c.served(j)
		c.devices += g.Size()
		r.book(&c.leftover, g)
		return true
	}
	return false
}

const leftOver = "left over from the auction"

// renewOne gives one job of an app its own devices back.
func (r *round) renewOne(b *bidder) bool {
	c := r.claim(b.app)
	for _, j := range c.jobs {
		if r.lost[j] && r.renew(j, leftOver) {
			c.served(j)
			c.devices += j.Gang.Size()
			r.book(&c.leftover, j.Gang)
			r.book(&c.extended, j.Gang)
			return true
		}
	}
	return false
}

func gangAt(node int) cluster.Gang { return cluster.Gang{{Node: node}} }

// book adds a gang to an account, by machine and type.
func (r *round) book(to *[]*outbidv1.Lot, g cluster.Gang) {
	for _, p := range g {
		n := &r.v.Nodes[p.Node]
		kind := n.Devices[p.Devices[0]].Type
		i := slices.IndexFunc(*to, func(l *outbidv1.Lot) bool { return l.GetNode() == n.Name && l.GetType() == kind })
		if i < 0 {
			*to = append(*to, &outbidv1.Lot{Node: n.Name, Type: kind})
			i = len(*to) - 1
		}
		(*to)[i].Devices += int32(len(p.Devices))
	}
}
