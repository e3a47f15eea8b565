package bidder

import (
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Bids returns the table's rows in the form of an auction's record.
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

// RowsOf is the inverse of Bids.
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

// Recorded returns a bidder that repeats the answers of a past round, because external bidders may answer differently
// when they are asked again.
func Recorded(auction *outbidv1.Auction) Bidder { return recorded{auction} }

type recorded struct{ auction *outbidv1.Auction }

// Bid implements Bidder. A sweep that is not in the record was not asked then, and has no bid.
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
			tables[i].Refused = "the record of this round has no answer of its bidder"
		case b.GetRefused() != "":
			tables[i].Refused = b.GetRefused()
		default:
			tables[i] = Table{Rho: b.GetRho(), Ideal: b.GetIdealSeconds(), Rows: RowsOf(b.GetBids())}
		}
	}
	return tables, nil
}
