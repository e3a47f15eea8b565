package themis

import (
	"github.com/outbid-dev/outbid/orchestrator/bidder"
	"github.com/outbid-dev/outbid/orchestrator/policy/themis/auction"
)

// bid is the bid of a sweep that was asked, with the sweep's index in the ranking.
type bid struct {
	index int
	state *bidder.AppState
	table bidder.Table
	// own is the built-in bidder's undistorted table. The arbiter takes T_id and the rho that it remembers from it,
	// whichever bidder the sweep uses.
	own bidder.Table
}

// isOutside reports whether a bidder outside the binary bids for the sweep.
func (b *bid) isOutside() bool { return b.state.Bidder != "" }

// collect asks the bidders: the built-in one for every sweep, and others for sweeps that chose one.
func collect(o *bidder.Offer, asked []int, states []*bidder.AppState, others bidder.Bidder, set *settings) []bid {
	bids := make([]bid, len(asked))
	var away []*bid
	for i := range bids {
		bids[i] = bid{index: asked[i], state: states[i]}
	}
	fillTables(bidder.BuiltIn{}, o, pointers(bids))
	for i := range bids {
		b := &bids[i]
		b.own = b.table
		if b.isOutside() {
			away = append(away, b)
		} else {
			set.distortTable(b.state.App, &b.table)
		}
	}
	if len(away) > 0 && others == nil {
		for _, b := range away {
			b.table.Refused = "this server has no bidders outside the binary"
		}
		return bids
	}
	fillTables(others, o, away)
	for _, b := range away {
		b.table.By(b.own.Ideal)
		set.distortTable(b.state.App, &b.table)
	}
	return bids
}

func pointers(bids []bid) []*bid {
	all := make([]*bid, len(bids))
	for i := range bids {
		all[i] = &bids[i]
	}
	return all
}

// fillTables asks a bidder for the tables of some bids. Without a valid answer the bids are refused.
func fillTables(a bidder.Bidder, o *bidder.Offer, bids []*bid) {
	if len(bids) == 0 {
		return
	}
	states := make([]*bidder.AppState, len(bids))
	for i, b := range bids {
		states[i] = b.state
	}
	tables, err := a.Bid(o, states)
	for i, b := range bids {
		switch {
		case err != nil:
			b.table.Refused = err.Error()
		case len(tables) != len(bids):
			b.table.Refused = "its bidder did not answer for every sweep"
		default:
			b.table = tables[i]
			checkTable(&b.table)
		}
	}
}

// checkTable refuses an invalid table.
func checkTable(t *bidder.Table) {
	if t.Refused != "" {
		return
	}
	t.Rows = t.Rows[:min(len(t.Rows), bidder.MaxRows)]
	sound := auction.Sound(t.Rho) && auction.Sound(t.Ideal)
	for i := range t.Rows {
		sound = sound && auction.Sound(t.Rows[i].Rho)
	}
	if !sound {
		t.Refused = "its table has a rho or an ideal time that is not a number above 0"
	}
}
