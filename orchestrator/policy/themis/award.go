package themis

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/outbid-dev/outbid/orchestrator/bidder"
	"github.com/outbid-dev/outbid/orchestrator/policy/themis/auction"
)

// award is the outcome of a bid.
type award struct {
	*bid
	// row is the row won before payment, or -1 for none. keeps is the part of it that remains after payment, and gangs
	// lists what that is.
	row   int
	keeps float64
	gangs []bidder.Gangs
}

// reason explains a grant to the winner.
func (a *award) reason() string {
	return fmt.Sprintf("won in the auction: rho %.3g with its row, %.3g with nothing; keeps %.0f%% of the row",
		a.table.Rows[a.row].Rho, a.table.Rho, 100*a.keeps)
}

// runAuction runs the auction and deducts the hidden payments from the rows won.
func runAuction(o *bidder.Offer, bids []bid, within *parts, set *settings, chance *rand.Rand) ([]award, *auction.Result) {
	entries := make([]auction.Bidder, len(bids))
	for i := range bids {
		entries[i] = auction.Bidder{Nothing: 1}
		if b := &bids[i]; b.table.Refused == "" {
			entries[i] = auction.Bidder{Nothing: b.rhoOfNothing(set.Nothing), Rows: b.table.Rows}
		}
		entries[i].Group = within.group(bids[i].index)
	}
	result := auction.RunWithin(o.Lots, entries, within.bounds())
	awards := make([]award, len(bids))
	for i := range bids {
		a := award{bid: &bids[i], row: result.Rows[i], keeps: result.Keeps[i]}
		if a.row >= 0 {
			a.gangs = pay(a.table.Rows[a.row].Gangs, a.keeps, max(1, a.state.Demand.Min), set.KeepOne, chance)
		}
		awards[i] = a
	}
	return awards, &result
}

// rhoOfNothing returns the rho without a grant that the auction uses. For a sweep that would then hold nothing it is
// unbounded (section 3.2.3), so that any grant is a huge improvement. A product cannot contain infinity, so factor
// stands for it.
func (b *bid) rhoOfNothing(factor float64) float64 {
	for i := range b.state.Jobs {
		if b.state.Jobs[i].Held.Devices > 0 {
			return b.table.Rho
		}
	}
	return b.table.Rho * factor
}

// pay deducts the hidden payment from a row. It keeps whole gangs, and a part of the next one if the part has at least
// the devices that a trial needs; otherwise it draws whether to keep that gang, so that the expected number of devices
// is exact. With keepOne it keeps at least one gang.
func pay(row []bidder.Gangs, keeps float64, least int, keepOne bool, chance *rand.Rand) []bidder.Gangs {
	if keeps >= 1 {
		return splitGangs(row, math.Inf(1))
	}
	devices := 0
	for _, g := range row {
		devices += g.Size()
	}
	rest := keeps * float64(devices)
	kept := splitGangs(row, rest)
	for _, g := range kept {
		rest -= float64(g.Size())
	}
	next := gangAfter(row, len(kept))
	if next == nil {
		return kept
	}
	whole := int(rest + chance.Float64())
	switch {
	case next.Machines == 1 && rest >= float64(least):
		next.Devices = min(whole, next.Devices)
		kept = append(kept, *next)
	case chance.Float64() < rest/float64(next.Size()), keepOne && len(kept) == 0:
		kept = append(kept, *next)
	}
	return kept
}

// splitGangs lists the gangs of a row one by one, as many as fit into the number of devices.
func splitGangs(row []bidder.Gangs, devices float64) []bidder.Gangs {
	var out []bidder.Gangs
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

// gangAfter returns the n-th gang of a row, counted from 0, or nil after the last.
func gangAfter(row []bidder.Gangs, n int) *bidder.Gangs {
	for _, g := range row {
		if n < g.Count {
			g.Count = 1
			return &g
		}
		n -= g.Count
	}
	return nil
}
