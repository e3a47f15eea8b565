package themis

import (
	"github.com/outbid-dev/outbid/orchestrator/agent"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/themis/auction"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Bounds of a record: lots, bidders and, of the built-in agent's tables, rows of all together. What agents outside the
// binary said is kept whole, because it cannot be worked out again.
const (
	maxLots    = 256
	maxBidders = 128
	maxRows    = 512
)

// begin starts the record.
func (r *round) begin(o *agent.Offer) {
	r.record = &outbidv1.Auction{
		FairnessKnob: r.p.set.knob, Apps: int32(len(r.v.Apps)), LeaseSeconds: r.p.set.lease.Seconds(),
	}
	for i := range o.Lots {
		l := &o.Lots[i]
		if i < maxLots {
			r.record.Lots = append(r.record.Lots, &outbidv1.Lot{Node: l.Node, Type: l.Type, Devices: int32(l.Free)})
		}
	}
}

// note writes down how the auction ended.
func (r *round) note(res *auction.Result) {
	r.record.LogWelfare, r.record.LogWelfareBound, r.record.Exact = res.Log, res.Bound, res.Exact
}

// close completes the record with what everybody got, and lets the arbiter remember what it was told.
func (r *round) close(plan *policy.Plan) {
	if r.record == nil {
		return
	}
	changes := len(plan.Grants) + len(plan.Renews) + len(plan.Revokes)
	outside := false
	asked := 0
	for _, b := range r.bidders {
		if b.asked {
			asked++
			outside = outside || b.sit.Agent != ""
		}
	}
	each := maxRows / max(1, asked)
	for _, b := range r.bidders {
		c := r.claim(b.app)
		after := r.after(b, c)
		if !b.asked && len(c.leftover) == 0 || len(r.record.Bidders) >= maxBidders && (b.sit == nil || b.sit.Agent == "") {
			continue
		}
		m := &outbidv1.Bidder{
			Sweep: b.app.ID, Rho: b.rho, Asked: b.asked, Fair: -1, Keeps: b.keeps, Won: c.won, Leftover: c.leftover,
			Renewed: c.extended, Refused: b.table.Refused,
		}
		if seen := r.p.Seen[b.app.ID]; seen != nil {
			m.IdealSeconds = seen.Ideal
			m.RhoAfter, m.ForecastSeconds = after, after*seen.Ideal
		}
		if b.asked {
			b.list(m, each)
		}
		r.record.Bidders = append(r.record.Bidders, m)
	}
	if changes > 0 || outside {
		plan.Auction = r.record
	}
}

// after remembers the rho of an app with what it has now, and returns it. It is by the arbiter's own table, not by that of
// an agent outside: over-reporting must not make anybody visible.
func (r *round) after(b *bidder, c *claim) float64 {
	if !b.asked || b.own.Ideal <= 0 {
		if seen := r.p.Seen[b.app.ID]; seen != nil {
			return seen.with(r.v, b.app, c.devices)
		}
		return b.rho
	}
	got := 0
	for _, lots := range [...][]*outbidv1.Lot{c.won, c.leftover} {
		for _, l := range lots {
			got += int(l.GetDevices())
		}
	}
	rho := worth(&b.own, got)
	r.p.remember(r.v, b.app, b.sit, b.own.Ideal, rho, c.devices)
	return rho
}

// worth is what a table says of so many devices: the best row that does not hold more.
func worth(t *agent.Table, devices int) float64 {
	rho := t.Rho
	for i := range t.Rows {
		n := 0
		for _, g := range t.Rows[i].Gangs {
			n += g.Size()
		}
		if n <= devices {
			rho = min(rho, t.Rows[i].Rho)
		}
	}
	return rho
}

// list writes down a bidder's table: all of it if there is room or if it came from outside, otherwise rows at even
// distances and the winning one.
func (b *bidder) list(m *outbidv1.Bidder, room int) {
	t := b.table
	m.Rho = t.Rho
	if n := len(t.Rows); b.sit.Agent == "" && n > room {
		every := float64(n) / float64(max(1, room))
		var rows []agent.Row
		fair := -1
		next := 0.0
		for i, row := range t.Rows {
			if i == b.row {
				fair = len(rows)
			} else if float64(i) < next {
				continue
			}
			next = max(next, float64(i)) + every
			rows = append(rows, row)
		}
		t.Rows = rows
		m.Fair = int32(fair)
	} else {
		m.Fair = int32(b.row)
	}
	m.Bids = t.Bids()
}
