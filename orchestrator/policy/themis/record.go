package themis

import (
	"fmt"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/bidder"
	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/themis/auction"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Limits of a record: lots, bidders, and rows over all tables of the built-in bidder. Tables of outside bidders are
// recorded in full because they cannot be computed again.
const (
	maxLots    = 256
	maxBidders = 128
	maxRows    = 512
)

// recordInput holds the inputs of a record.
type recordInput struct {
	set    *settings
	apps   int
	offer  *bidder.Offer
	result *auction.Result
	order  []ranked
	awards []award
	shares []share
	// known is the memory of each sweep after the round, and after the rho of each with its present devices.
	known map[string]*memory
	after []float64
}

// record returns the record of an auction for the ledger.
func (r *recordInput) record() *outbidv1.Auction {
	out := &outbidv1.Auction{
		FairnessKnob: r.set.knob, Apps: int32(r.apps), LeaseSeconds: r.set.lease.Seconds(),
		LogWelfare: r.result.Log, LogWelfareBound: r.result.Bound, Exact: r.result.Exact,
		Rule: r.set.rule(),
	}
	for i := range r.offer.Lots[:min(len(r.offer.Lots), maxLots)] {
		l := &r.offer.Lots[i]
		out.Lots = append(out.Lots, &outbidv1.Lot{Node: l.Node, Type: l.Type, Devices: int32(l.Free)})
	}
	won := make([]*award, len(r.order))
	for i := range r.awards {
		won[r.awards[i].index] = &r.awards[i]
	}
	for i := range r.order {
		a := won[i]
		if a == nil && len(r.shares[i].leftover) == 0 || len(out.Bidders) >= maxBidders && (a == nil || !a.isOutside()) {
			continue
		}
		out.Bidders = append(out.Bidders, r.bidder(i, a))
	}
	return out
}

// rule describes which sweeps are asked.
func (s *settings) rule() string {
	text := fmt.Sprintf("the %.3g%% with the worst rho", 100*(1-s.knob))
	switch {
	case s.Rank == passedOver:
		text = fmt.Sprintf("the %.3g%% whose rho would be worst if they were passed over now", 100*(1-s.knob))
	case s.Idle != "cached":
		text += ", those that hold nothing first"
	}
	if s.Cover > 0 {
		text += fmt.Sprintf(", no more than it takes to use the offer %.3g times", s.Cover)
	}
	if s.Newcomers {
		text += "; newcomers beside them"
	}
	if s.Short {
		text += "; those that could end within a lease beside them"
	}
	return text
}

// explainRank describes a sweep's rank and its reason.
func (r *recordInput) explainRank(i int, asked bool) string {
	o := &r.order[i]
	by := fmt.Sprintf("rho %.3g", o.rho)
	switch {
	case o.inactive:
		by = "holds and wants nothing"
	case r.set.Rank == passedOver:
		by = fmt.Sprintf("rho %.3g if passed over", o.passedOver)
	case o.idle && r.set.Idle != "cached":
		by = fmt.Sprintf("holds nothing for %.2g of its T_id", o.waited)
	}
	text := fmt.Sprintf("%d of %d: %s", i+1, len(r.order), by)
	switch {
	case asked:
		return text
	case len(o.open) == 0:
		return text + "; wants nothing that was on offer"
	default:
		return text + "; not asked"
	}
}

// bidder returns the entry of one sweep. a is nil for a sweep that was not asked.
func (r *recordInput) bidder(i int, a *award) *outbidv1.Bidder {
	app, s := r.order[i].app, &r.shares[i]
	m := &outbidv1.Bidder{
		Sweep: app.ID, Rho: r.order[i].rho, Asked: a != nil, Fair: -1, Keeps: 1,
		Won: s.won, Leftover: s.leftover, Renewed: s.renewed, Why: r.explainRank(i, a != nil),
	}
	if seen := r.known[app.ID]; seen != nil {
		// The memory of a sweep that was not asked is from an earlier round: its T_id has changed since with the mean
		// number of sweeps.
		if m.IdealSeconds = r.order[i].ideal; a != nil {
			m.IdealSeconds = seen.Ideal
		}
		m.RhoAfter, m.ForecastSeconds = r.after[i], r.after[i]*m.IdealSeconds
	}
	if a != nil {
		m.Keeps, m.Refused = a.keeps, a.table.Refused
		a.recordTable(m, maxRows/max(1, len(r.awards)))
	}
	return m
}

// recordTable records a bidder's table: all of it if there is room or an outside bidder made it, otherwise evenly
// spaced rows and the winning one.
func (a *award) recordTable(m *outbidv1.Bidder, room int) {
	t := a.table
	m.Rho, m.Fair = t.Rho, int32(a.row)
	if n := len(t.Rows); !a.isOutside() && n > room {
		every := float64(n) / float64(max(1, room))
		var rows []bidder.Row
		fair := -1
		next := 0.0
		for i, row := range t.Rows {
			if i == a.row {
				fair = len(rows)
			} else if float64(i) < next {
				continue
			}
			next = max(next, float64(i)) + every
			rows = append(rows, row)
		}
		t.Rows, m.Fair = rows, int32(fair)
	}
	m.Bids = t.Bids()
}

// addToLots adds a gang to lots by node and type.
func addToLots(v *policy.View, to []*outbidv1.Lot, g cluster.Gang) []*outbidv1.Lot {
	for _, at := range g {
		n := &v.Nodes[at.Node]
		kind := n.Devices[at.Devices[0]].Type
		i := slices.IndexFunc(to, func(l *outbidv1.Lot) bool { return l.GetNode() == n.Name && l.GetType() == kind })
		if i < 0 {
			to = append(to, &outbidv1.Lot{Node: n.Name, Type: kind})
			i = len(to) - 1
		}
		to[i].Devices += int32(len(at.Devices))
	}
	return to
}
