package themis

import (
	"cmp"
	"math"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/agent"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/themis/auction"
)

// bidder is an app in a round: every one that wants devices is, those asked first.
type bidder struct {
	app *policy.App
	// rho is what the app would say now, and passedOver what it will come to if it is not asked in this round.
	rho, passedOver float64
	asked           bool
	sit             *agent.Situation
	table           agent.Table
	// row is what it would have without payment, keeps the part of it that it keeps, and gangs what that is.
	row   int
	keeps float64
	gangs []agent.Gangs
}

// auction asks, and gives what was won.
func (r *round) auction() {
	r.rank()
	asked := r.bidders[:r.ask()]
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
			bids[i] = auction.Bidder{Nothing: b.table.Rho, Rows: b.table.Rows}
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

// rank lists the apps that want devices, those first that would have the worst rho if they were passed over now. What an
// app holds on leases that are up is not its own any more; with nothing its rho has no bound (section 5.2), and so it does
// not tell those who can wait from those who cannot.
func (r *round) rank() {
	for _, a := range r.v.Apps {
		if !r.wanting(a) {
			continue
		}
		b := &bidder{app: a, rho: r.current(a), row: -1, keeps: 1}
		b.passedOver = r.p.Seen[a.ID].passedOver(r.v, a, r.claim(a).devices, r.p.set.lease.Seconds())
		r.bidders = append(r.bidders, b)
	}
	slices.SortStableFunc(r.bidders, func(a, b *bidder) int { return cmp.Compare(b.passedOver, a.passedOver) })
}

// ask says how many are asked: a part 1-f of all apps, at least one. Those that hold all they can use bid for no more than
// that, and are asked beside the others: otherwise they would be asked again at the end of every lease, and nobody else.
func (r *round) ask() int {
	live := 0
	for _, a := range r.v.Apps {
		if !a.Paused {
			live++
		}
	}
	n := max(1, int(math.Ceil((1-r.p.set.knob)*float64(live)-1e-9)))
	supply := float64(r.v.Free.FreeDevices()+r.onOffer()) * r.p.set.cover
	for i, b := range r.bidders {
		b.asked = true
		if !sated(b.app) {
			n--
		}
		for _, j := range r.claim(b.app).jobs {
			supply -= float64(max(1, j.Demand.Max))
		}
		if n == 0 || supply <= 0 {
			return i + 1
		}
	}
	return len(r.bidders)
}

// sated says whether an app's jobs all hold as much as they can use.
func sated(a *policy.App) bool {
	for _, j := range a.Jobs {
		if j.Waiting() || j.Running() && (j.Ending || j.Gang.Size() < j.Demand.Max) {
			return false
		}
	}
	return true
}

// offer lists what is free and what is on leases that are up, by machine and type.
func (r *round) offer() *agent.Offer {
	o := &agent.Offer{}
	free := r.v.Free
	mark := free.Mark()
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
	free.Rollback(mark)
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

// hear asks the agents: the built-in one, and the one that answers for those outside.
func (r *round) hear(o *agent.Offer, asked []*bidder) {
	var own, others []*bidder
	for _, b := range asked {
		if b.sit.Agent == "" {
			own = append(own, b)
		} else {
			others = append(others, b)
		}
	}
	r.bid(agent.BuiltIn{}, o, own)
	if len(others) > 0 && r.p.agents == nil {
		for _, b := range others {
			b.table.Refused = "this server has no agents outside the binary"
		}
		return
	}
	r.bid(r.p.agents, o, others)
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
			r.distort(b.app.ID, &b.table)
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
