package themis

import (
	"math"

	"github.com/outbid-dev/outbid/orchestrator/agent"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/themis/auction"
)

// bidder is an app in a round. All that are live are ranked; those that are asked bid.
type bidder struct {
	app *policy.App
	// rho is the app's cached finish-time fairness; idle says that it holds nothing, so that its rho has no bound, and
	// waited for how long that has been so, in units of its T_id.
	rho, waited float64
	idle        bool
	// ideal is its T_id in seconds as it is by now.
	ideal float64
	// passedOver is what its rho will come to if it is not asked in this round (rank=passed-over).
	passedOver float64
	asked      bool
	sit        *agent.Situation
	table      agent.Table
	// own is the built-in agent's table without any lie: T_id and the rho that the arbiter remembers are of it, whoever bids.
	own agent.Table
	// row is what it would have without payment, keeps the part of it that it keeps, and gangs what that is.
	row   int
	keeps float64
	gangs []agent.Gangs
}

// auction asks, and gives what was won.
func (r *round) auction() {
	r.rank()
	asked := r.visible()
	if len(asked) == 0 {
		return
	}
	offer := r.offer()
	r.begin(offer)
	r.hear(offer, asked)
	bids := make([]auction.Bidder, len(asked))
	for i, b := range asked {
		bids[i] = auction.Bidder{Nothing: 1}
		if b.table.Refused == "" {
			bids[i] = auction.Bidder{Nothing: b.nothing(r.p.set.nothing), Rows: b.table.Rows}
		}
	}
	result := auction.Run(offer.Lots, bids)
	r.note(&result)
	for i, b := range asked {
		b.row, b.keeps = result.Rows[i], result.Keeps[i]
		if b.row >= 0 {
			b.gangs = r.pay(b.table.Rows[b.row].Gangs, b.keeps, max(1, b.app.Demand.Min))
		}
	}
	r.settle(asked)
}

// nothing is the rho with no grant that the auction counts with. That of an app which would then hold nothing has no bound
// (section 3.2.3), so that any grant is a huge improvement; factor stands for that, as a product has no place for infinity.
func (b *bidder) nothing(factor float64) float64 {
	for i := range b.sit.Jobs {
		if b.sit.Jobs[i].Held.Devices > 0 {
			return b.table.Rho
		}
	}
	return b.table.Rho * factor
}

// offer lists what is free and what is on leases that are up, by machine and type.
func (r *round) offer() *agent.Offer {
	o := &agent.Offer{}
	free := r.v.Free
	try := r.v.Statement()
	defer try.Discard()
	for _, j := range r.expired {
		free.Release(j.Gang, j.Demand)
	}
	for i := range r.v.Nodes {
		n := &r.v.Nodes[i]
		if n.Draining {
			continue
		}
		for _, kind := range free.Types() {
			if k := free.FreeAt(i, kind); k > 0 {
				o.Lots = append(o.Lots, agent.Lot{
					Node: n.Name, Rack: n.Rack, Type: kind, Free: k, Slots: free.FreeSlots(i, kind, nil),
				})
			}
		}
	}
	for _, b := range r.bidders {
		if b.asked {
			b.sit = r.situation(b.app)
			r.allow(b.sit, o)
		}
	}
	return o
}

// allow says which lots an app may use, if it may not use all.
func (r *round) allow(s *agent.Situation, o *agent.Offer) {
	if s.Demand.Plain() {
		return
	}
	node := 0
	s.Free = make([]int, len(o.Lots))
	for i := range o.Lots {
		l := &o.Lots[i]
		for r.v.Nodes[node].Name != l.Node {
			node++
		}
		if s.Demand.Accepts(l.Type) && r.v.Free.Fits(gangAt(node), s.Demand) {
			s.Free[i] = l.Free
		}
	}
}

// hear asks the agents: the built-in one for every app, and the one that answers for those outside.
func (r *round) hear(o *agent.Offer, asked []*bidder) {
	var others []*bidder
	r.bid(agent.BuiltIn{}, o, asked)
	for _, b := range asked {
		b.own = b.table
		if b.sit.Agent != "" {
			others = append(others, b)
			continue
		}
		r.distort(b.app.ID, &b.table)
	}
	if len(others) > 0 && r.p.agents == nil {
		for _, b := range others {
			b.table.Refused = "this server has no agents outside the binary"
		}
		return
	}
	r.bid(r.p.agents, o, others)
	for _, b := range others {
		b.table.By(b.own.Ideal)
		r.distort(b.app.ID, &b.table)
	}
}

func (r *round) bid(a agent.Agent, o *agent.Offer, asked []*bidder) {
	if len(asked) == 0 {
		return
	}
	situations := make([]*agent.Situation, len(asked))
	for i, b := range asked {
		situations[i] = b.sit
	}
	tables, err := a.Bid(o, situations)
	for i, b := range asked {
		switch {
		case err != nil:
			b.table.Refused = err.Error()
		case len(tables) != len(asked):
			b.table.Refused = "its agent did not answer for every app"
		default:
			b.table = tables[i]
			check(&b.table)
		}
	}
}

// check refuses a table that makes no sense.
func check(t *agent.Table) {
	if t.Refused != "" {
		return
	}
	t.Rows = t.Rows[:min(len(t.Rows), agent.MaxRows)]
	sound := auction.Sound(t.Rho) && auction.Sound(t.Ideal)
	for i := range t.Rows {
		sound = sound && auction.Sound(t.Rows[i].Rho)
	}
	if !sound {
		t.Refused = "its table has a rho or an ideal time that is not a number above 0"
	}
}

// pay takes the hidden payment off a row. Gangs stay whole but for the last one, of which a part that is no less than the
// least that a job takes is kept; otherwise chance decides, so that the app keeps so much in expectation.
func (r *round) pay(row []agent.Gangs, keeps float64, least int) []agent.Gangs {
	if keeps >= 1 {
		return single(row, math.Inf(1))
	}
	devices := 0
	for _, g := range row {
		devices += g.Size()
	}
	rest := keeps * float64(devices)
	kept := single(row, rest)
	for _, g := range kept {
		rest -= float64(g.Size())
	}
	next := following(row, len(kept))
	if next == nil {
		return kept
	}
	whole := int(rest + r.p.rng.Float64())
	switch {
	case next.Machines == 1 && rest >= float64(least):
		next.Devices = min(whole, next.Devices)
		kept = append(kept, *next)
	case r.p.rng.Float64() < rest/float64(next.Size()), r.p.set.keepOne && len(kept) == 0:
		kept = append(kept, *next)
	}
	return kept
}

// single lists the gangs of a row one by one, as many as fit into so many devices.
func single(row []agent.Gangs, devices float64) []agent.Gangs {
	var out []agent.Gangs
	for _, g := range row {
		n := g.Count
		for g.Count = 1; n > 0; n-- {
			if devices -= float64(g.Size()); devices < 0 {
				return out
			}
			out = append(out, g)
		}
	}
	return out
}

// following is the gang of a row after so many; nil after the last.
func following(row []agent.Gangs, n int) *agent.Gangs {
	for _, g := range row {
		if n < g.Count {
			g.Count = 1
			return &g
		}
		n -= g.Count
	}
	return nil
}
