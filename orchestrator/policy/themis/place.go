package themis

import (
	"cmp"
	"maps"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/agent"
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

// served records that a trial of a sweep got a gang.
func (p *placing) served(of int, j *policy.Job, g cluster.Gang) {
	s := &p.shares[of]
	s.open = slices.DeleteFunc(s.open, func(o *policy.Job) bool { return o == j })
	s.devices += g.Size()
	p.parts.spend(of, g.Size())
}

// placing turns awards and leftovers into grants, renewals and reservations of a plan.
type placing struct {
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

func newPlacing(v *policy.View, plan *policy.Planner, s *supply, order []ranked, set *settings) *placing {
	p := &placing{
		v: v, plan: plan, supply: s, set: set, order: order, expired: s.expired, lost: maps.Clone(s.up), shares: make([]share, len(order)),
	}
	for i := range order {
		p.shares[i] = share{open: slices.Clone(order[i].open), devices: order[i].keeps}
	}
	return p
}

// offered returns the devices of onOffer by type.
func (p *placing) offered() []offered {
	free := p.plan.Free()
	offer := make([]offered, len(free.Types()))
	for k, kind := range free.Types() {
		offer[k] = offered{kind, free.FreeOf(kind)}
	}
	if p.reclaimed {
		return offer
	}
	for j := range p.lost {
		for _, at := range j.Held() {
			for _, d := range at.Devices {
				kind := p.v.Nodes[at.Node].Devices[d].Type
				k := slices.IndexFunc(offer, func(o offered) bool { return o.kind == kind })
				offer[k].devices++
			}
		}
	}
	return offer
}

// onOffer counts the devices to distribute: free ones and those on expired leases.
func (p *placing) onOffer() int {
	n := p.plan.Free().FreeDevices()
	if !p.reclaimed {
		for j := range p.lost {
			n += j.Gang().Size()
		}
	}
	return n
}

// reclaim adds the devices on expired leases that were not renewed to the free ones.
func (p *placing) reclaim() {
	if p.reclaimed {
		return
	}
	p.reclaimed = true
	for _, j := range p.expired {
		if p.lost[j] {
			p.plan.Reclaim(j)
		}
	}
}

// renew lets a trial continue where it is, unless its devices were given away.
func (p *placing) renew(of int, j *policy.Job, reason string) bool {
	if !p.lost[j] || !p.keep(of, j, reason) {
		return false
	}
	delete(p.lost, j)
	return true
}

// win is a gang that was won and has not been placed yet.
type win struct {
	*award
	gang agent.Gangs
	// spreads means that its sweep won more gangs than it has trials, for forks, which must be on different nodes.
	spreads bool
}

// give places what was won, largest gangs first: sizes that divide evenly fit the nodes, and small gangs that stay
// where they are do not break up the places that large ones need. Among gangs of one size those for forks come first,
// because no two forks of a trial fit on one node. A gang that fits nowhere is left over.
func (p *placing) give(awards []award) {
	var wins []win
	for i := range awards {
		a := &awards[i]
		spreads := p.order[a.of].app.Forks > 1 && len(a.gangs) > len(p.shares[a.of].open)
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
		if !p.goOn(w) && !p.deliver(w) {
			p.forkWon(w)
		}
	}
}

// goOn renews a trial of the winner that already holds such a gang, if there is one.
func (p *placing) goOn(w win) bool {
	s := &p.shares[w.of]
	for _, j := range s.open {
		if p.lost[j] && alike(p.v, j.Gang(), w.gang) && p.renew(w.of, j, w.reason()) {
			p.served(w.of, j, j.Gang())
			s.won, s.renewed = book(p.v, s.won, j.Gang()), book(p.v, s.renewed, j.Gang())
			return true
		}
	}
	return false
}

// alike reports whether what a trial holds matches a gang that was won.
func alike(v *policy.View, held cluster.Gang, g agent.Gangs) bool {
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

// deliver finds a trial and a place for a gang that was won.
func (p *placing) deliver(w win) bool {
	s := &p.shares[w.of]
	i := slices.IndexFunc(s.open, func(j *policy.Job) bool {
		return j.Demand.Min <= w.gang.Size() && j.Demand.Accepts(w.gang.Type) && (w.gang.Machines == 1 || j.Demand.MultiNode)
	})
	if i < 0 {
		return false
	}
	j := s.open[i]
	n := min(w.gang.Size(), max(j.Demand.Min, j.Demand.Max))
	if g, ok := p.locate(w.gang, j.Demand, n); ok && p.place(w.of, j, g, w.reason()) {
		p.served(w.of, j, g)
		s.won = book(p.v, s.won, g)
	}
	return true
}

// locate finds a gang's place: on the node that it names, on one node if it is for one, otherwise anywhere.
func (p *placing) locate(g agent.Gangs, d cluster.Demand, n int) (cluster.Gang, bool) {
	if g.Node != "" {
		i := slices.IndexFunc(p.v.Nodes, func(node cluster.Node) bool { return node.Name == g.Node })
		if i < 0 {
			return nil, false
		}
		if at, ok := p.plan.Free().PlaceAt(i, d, n, g.Type); ok || p.reclaimed {
			return at, ok
		}
		p.reclaim()
		return p.plan.Free().PlaceAt(i, d, n, g.Type)
	}
	if g.Machines == 1 {
		return p.together(d, n, max(1, d.Min), g.Type)
	}
	return p.find(d, n, g.Type)
}

// find finds n devices for a trial: on free devices, or else also on those that will be free soon.
func (p *placing) find(d cluster.Demand, n int, kind string) (cluster.Gang, bool) {
	d.Min, d.Max = n, n
	if g, ok := p.plan.Free().Place(d, n, kind); ok || p.reclaimed || len(p.lost) == 0 {
		return g, ok
	}
	p.reclaim()
	return p.plan.Free().Place(d, n, kind)
}

// together finds n devices on one node or, if no node has as many, half as many and so on down to least. It uses
// several nodes only if no node has room for least.
func (p *placing) together(d cluster.Demand, n, least int, kind string) (cluster.Gang, bool) {
	alone := d
	alone.MultiNode = false
	for ; ; n = max(least, n/2) {
		if g, ok := p.find(alone, n, kind); ok {
			return g, true
		}
		if n <= least {
			break
		}
	}
	if !d.MultiNode {
		return nil, false
	}
	return p.find(d, least, kind)
}

// end renews the remaining trials whose devices no other trial got, revokes the others and returns the plan. Trials
// with other devices reserved move there.
func (p *placing) end(reserved []policy.Reservation) policy.Plan {
	for _, j := range p.expired {
		moves := slices.ContainsFunc(reserved, func(r policy.Reservation) bool { return r.Job == j.Name() })
		if p.lost[j] && !moves && p.plan.Renew(j, "nobody else wants its devices") {
			delete(p.lost, j)
		}
	}
	for _, j := range p.expired {
		if p.lost[j] {
			p.plan.Reclaim(j)
		}
	}
	return p.plan.Plan("", "its lease is up, and its devices went to others in the auction")
}
