package agent

import (
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Bids are a table's rows as an auction's record holds them.
func (t *Table) Bids() []*outbidv1.Bid {
	bids := make([]*outbidv1.Bid, 0, len(t.Rows))
	for _, row := range t.Rows {
		bid := &outbidv1.Bid{Rho: row.Rho}
		for _, g := range row.Gangs {
			bid.Gangs = append(bid.Gangs, &outbidv1.Gangs{
				Count: int32(g.Count), Machines: int32(g.Machines), Devices: int32(g.Devices), Type: g.Type,
				Node: g.Node, Rack: g.Rack,
			})
		}
		bids = append(bids, bid)
	}
	return bids
}

// RowsOf are the rows that Bids made.
func RowsOf(bids []*outbidv1.Bid) []Row {
	var rows []Row
	for _, bid := range bids {
		row := Row{Rho: bid.GetRho()}
		for _, g := range bid.GetGangs() {
			row.Gangs = append(row.Gangs, Gangs{
				Count: int(g.GetCount()), Machines: int(g.GetMachines()), Devices: int(g.GetDevices()), Type: g.GetType(),
				Node: g.GetNode(), Rack: g.GetRack(),
			})
		}
		rows = append(rows, row)
	}
	return rows
}

// Recorded answers as agents did in a round of the past: what one outside the binary said cannot be found out again by
// asking it.
func Recorded(auction *outbidv1.Auction) Agent { return recorded{auction} }

type recorded struct{ auction *outbidv1.Auction }

// Bid implements Agent. An app that the record does not have was not asked then, and has no bid.
func (r recorded) Bid(_ *Offer, apps []*AppState) ([]Table, error) {
	bidders := map[string]*outbidv1.Bidder{}
	for _, b := range r.auction.GetBidders() {
		bidders[b.GetSweep()] = b
	}
	tables := make([]Table, len(apps))
	for i, s := range apps {
		b := bidders[s.App]
		switch {
		case b == nil:
			tables[i].Refused = "the record of this round has no answer of its agent"
		case b.GetRefused() != "":
			tables[i].Refused = b.GetRefused()
		default:
			tables[i] = Table{Rho: b.GetRho(), Ideal: b.GetIdealSeconds(), Rows: RowsOf(b.GetBids())}
		}
	}
	return tables, nil
}
