package themis

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/outbid-dev/outbid/orchestrator/agent"
	"github.com/outbid-dev/outbid/orchestrator/policy/themis/auction"
)

// award is what a bid got in the auction.
type award struct {
	*bid
	// row is what it would have without payment, -1 for nothing, keeps the part of it that it keeps, and gangs what that is.
	row   int
	keeps float64
	gangs []agent.Gangs
}

// reason of a grant to the winner.
func (a *award) reason() string {
	return fmt.Sprintf("won in the auction: rho %.3g with its row, %.3g with nothing; keeps %.0f%% of the row",
		a.table.Rows[a.row].Rho, a.table.Rho, 100*a.keeps)
}

// hold holds the auction, and takes the hidden payments off what was won.
func hold(o *agent.Offer, bids []bid, within *parts, set *settings, chance *rand.Rand) ([]award, *auction.Result) {
	entries := make([]auction.Bidder, len(bids))
	for i := range bids {
		entries[i] = auction.Bidder{Nothing: 1}
		if b := &bids[i]; b.table.Refused == "" {
			entries[i] = auction.Bidder{Nothing: b.nothing(set.nothing), Rows: b.table.Rows}
		}
		entries[i].Group = within.group(bids[i].of)
	}
	result := auction.RunWithin(o.Lots, entries, within.bounds())
	awards := make([]award, len(bids))
	for i := range bids {
		a := award{bid: &bids[i], row: result.Rows[i], keeps: result.Keeps[i]}
		if a.row >= 0 {
			a.gangs = pay(a.table.Rows[a.row].Gangs, a.keeps, max(1, a.state.Demand.Min), set.keepOne, chance)
		}
		awards[i] = a
	}
	return awards, &result
}

// nothing is the rho with no grant that the auction counts with. That of an app which would then hold nothing has no bound
// (section 3.2.3), so that any grant is a huge improvement; factor stands for that, as a product has no place for infinity.
func (b *bid) nothing(factor float64) float64 {
	for i := range b.state.Jobs {
		if b.state.Jobs[i].Held.Devices > 0 {
			return b.table.Rho
		}
	}
	return b.table.Rho * factor
}

// pay takes the hidden payment off a row. Gangs stay whole but for the last one, of which a part that is no less than the
// least that a job takes is kept; otherwise chance decides, so that the app keeps so much in expectation. With keepOne it
// keeps at least one gang.
func pay(row []agent.Gangs, keeps float64, least int, keepOne bool, chance *rand.Rand) []agent.Gangs {
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
