package themis

import (
	"cmp"
	"maps"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/bidder"
	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// share is what a sweep gets in a round.
type share struct {
	// open lists the trials without a gang so far, and devices is the number of devices that the sweep has in the end.
	open    []*policy.Job
	devices int
	// won and leftover list the devices from the auction and from its leftovers; renewed is the part of both that
	// trials keep in place.
	won, leftover, renewed []*outbidv1.Lot
}

// recordGang records that a trial of a sweep got a gang.
func (al *allocator) recordGang(of int, j *policy.Job, g cluster.Gang) {
	s := &al.shares[of]
	s.open = slices.DeleteFunc(s.open, func(o *policy.Job) bool { return o == j })
	s.devices += g.Size()
	al.parts.spend(of, g.Size())
}

// allocator turns awards and leftovers into grants, renewals and reservations of a plan.
type allocator struct {
	v      *policy.View
	plan   *policy.Planner
	supply *supply
	set    *settings
	order  []ranked
	// expired lists the trials with expired leases, and lost those of them that have got nothing yet. Once reclaimed is
	// set, their devices are in the plan's free capacity.
	expired   []*policy.Job
	lost      map[*policy.Job]bool
	reclaimed bool
	// shares of the sweeps in the ranking.
	shares []share
	// forkSets holds the placement of each trial that may be forked, and gathered lists them in order.
	forkSets map[*policy.Job]*forkSet
	gathered []*forkSet
	// parts of the groups of sweeps, or nil without groups. bounded means that no sweep gets more than its group has
	// left of its part.
	parts   *parts
	bounded bool
	// byRate means that leftovers are assigned by measured rates.
	byRate bool
}

func newAllocator(v *policy.View, plan *policy.Planner, s *supply, order []ranked, set *settings) *allocator {
	p := &allocator{
		v: v, plan: plan, supply: s, set: set, order: order, expired: s.expired, lost: maps.Clone(s.isExpired), shares: make([]share, len(order)),
	}
	for i := range order {
		p.shares[i] = share{open: slices.Clone(order[i].open), devices: order[i].keeps}
	}
	return p
}

// offeredByType returns the devices of onOffer by type.
func (al *allocator) offeredByType() []offered {
	free := al.plan.Free()
	offer := make([]offered, len(free.Types()))
	for k, kind := range free.Types() {
		offer[k] = offered{kind, free.FreeOf(kind)}
	}
	if al.reclaimed {
		return offer
	}
	for j := range al.lost {
		for _, at := range j.Held() {
			for _, d := range at.Devices {
				kind := al.v.Nodes[at.Node].Devices[d].Type
				k := slices.IndexFunc(offer, func(o offered) bool { return o.kind == kind })
				offer[k].devices++
			}
		}
	}
	return offer
}

// devicesOnOffer counts the devices to distribute: free ones and those on expired leases.
func (al *allocator) devicesOnOffer() int {
	n := al.plan.Free().FreeDevices()
	if !al.reclaimed {
		for j := range al.lost {
			n += j.Gang().Size()
		}
	}
	return n
}

// reclaim adds the devices on expired leases that were not renewed to the free ones.
func (al *allocator) reclaim() {
	if al.reclaimed {
		return
	}
	al.reclaimed = true
	for _, j := range al.expired {
		if al.lost[j] {
			al.plan.Reclaim(j)
		}
	}
}

// renew lets a trial continue where it is, unless its devices were given away.
func (al *allocator) renew(of int, j *policy.Job, reason string) bool {
	if !al.lost[j] || !al.keepOrGather(of, j, reason) {
		return false
	}
	delete(al.lost, j)
	return true
}

// win is a gang that was won and has not been placed yet.
type win struct {
	*award
	gang bidder.Gangs
	// spreads means that its sweep won more gangs than it has trials, for forks, which must be on different nodes.
	spreads bool
}

// placeWins places what was won, largest gangs first: sizes that divide evenly fit the nodes, and small gangs that stay
// where they are do not break up the places that large ones need. Among gangs of one size those for forks come first,
// because no two forks of a trial fit on one node. A gang that fits nowhere is left over.
func (al *allocator) placeWins(awards []award) {
	var wins []win
	for i := range awards {
		a := &awards[i]
		spreads := al.order[a.index].app.Forks > 1 && len(a.gangs) > len(al.shares[a.index].open)
		for _, g := range a.gangs {
			wins = append(wins, win{a, g, spreads})
		}
	}
	slices.SortStableFunc(wins, func(a, b win) int {
		if n := cmp.Or(cmp.Compare(b.gang.Devices, a.gang.Devices), cmp.Compare(b.gang.Machines, a.gang.Machines)); n != 0 || a.spreads == b.spreads {
			return n
		}
		if a.spreads {
			return -1
		}
		return 1
	})
	for _, w := range wins {
		if !al.renewMatching(w) && !al.placeWin(w) {
			al.forkWon(w)
		}
	}
}

// renewMatching renews a trial of the winner that already holds such a gang, if there is one.
func (al *allocator) renewMatching(w win) bool {
	s := &al.shares[w.index]
	for _, j := range s.open {
		if al.lost[j] && matches(al.v, j.Gang(), w.gang) && al.renew(w.index, j, w.reason()) {
			al.recordGang(w.index, j, j.Gang())
			s.won, s.renewed = addToLots(al.v, s.won, j.Gang()), addToLots(al.v, s.renewed, j.Gang())
			return true
		}
	}
	return false
}

// matches reports whether what a trial holds matches a gang that was won.
func matches(v *policy.View, held cluster.Gang, g bidder.Gangs) bool {
	if held.Size() != g.Size() || len(held) > g.Machines || cluster.TypeOf(v.Nodes, held) != g.Type {
		return false
	}
	for _, at := range held {
		n := &v.Nodes[at.Node]
		if g.Node != "" && g.Node != n.Name || g.Rack != "" && g.Rack != n.Rack {
			return false
		}
	}
	return true
}

// placeWin finds a trial and a place for a gang that was won.
func (al *allocator) placeWin(w win) bool {
	s := &al.shares[w.index]
	i := slices.IndexFunc(s.open, func(j *policy.Job) bool {
		return j.Demand.Min <= w.gang.Size() && j.Demand.Accepts(w.gang.Type) && (w.gang.Machines == 1 || j.Demand.MultiNode)
	})
	if i < 0 {
		return false
	}
	j := s.open[i]
	n := min(w.gang.Size(), max(j.Demand.Min, j.Demand.Max))
	if g, ok := al.locate(w.gang, j.Demand, n); ok && al.placeOrSetAside(w.index, j, g, w.reason()) {
		al.recordGang(w.index, j, g)
		s.won = addToLots(al.v, s.won, g)
	}
	return true
}

// locate finds a gang's place: on the node that it names, on one node if it is for one, otherwise anywhere.
func (al *allocator) locate(g bidder.Gangs, d cluster.Demand, n int) (cluster.Gang, bool) {
	if g.Node != "" {
		i := slices.IndexFunc(al.v.Nodes, func(node cluster.Node) bool { return node.Name == g.Node })
		if i < 0 {
			return nil, false
		}
		if at, ok := al.plan.Free().PlaceAt(i, d, n, g.Type); ok || al.reclaimed {
			return at, ok
		}
		al.reclaim()
		return al.plan.Free().PlaceAt(i, d, n, g.Type)
	}
	if g.Machines == 1 {
		return al.findTogether(d, n, max(1, d.Min), g.Type)
	}
	return al.find(d, n, g.Type)
}

// find finds n devices for a trial: on free devices, or else also on those that will be free soon.
func (al *allocator) find(d cluster.Demand, n int, kind string) (cluster.Gang, bool) {
	d.Min, d.Max = n, n
	if g, ok := al.plan.Free().Place(d, n, kind); ok || al.reclaimed || len(al.lost) == 0 {
		return g, ok
	}
	al.reclaim()
	return al.plan.Free().Place(d, n, kind)
}

// findTogether finds n devices on one node or, if no node has as many, half as many and so on down to least. It uses
// several nodes only if no node has room for least.
func (al *allocator) findTogether(d cluster.Demand, n, least int, kind string) (cluster.Gang, bool) {
	alone := d
	alone.MultiNode = false
	for ; ; n = max(least, n/2) {
		if g, ok := al.find(alone, n, kind); ok {
			return g, true
		}
		if n <= least {
			break
		}
	}
	if !d.MultiNode {
		return nil, false
	}
	return al.find(d, least, kind)
}

// finishPlan renews the remaining trials whose devices no other trial got, revokes the others and returns the plan.
// Trials with other devices reserved move there.
func (al *allocator) finishPlan(reserved []policy.Reservation) policy.Plan {
	for _, j := range al.expired {
		moves := slices.ContainsFunc(reserved, func(r policy.Reservation) bool { return r.Job == j.Name() })
		if al.lost[j] && !moves && al.plan.Renew(j, "nobody else wants its devices") {
			delete(al.lost, j)
		}
	}
	for _, j := range al.expired {
		if al.lost[j] {
			al.plan.Reclaim(j)
		}
	}
	return al.plan.Plan("", "its lease is up, and its devices went to others in the auction")
}
