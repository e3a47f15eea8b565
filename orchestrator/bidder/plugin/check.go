package plugin

import (
	"fmt"
	"math"

	"github.com/outbid-dev/outbid/orchestrator/bidder"
	"github.com/outbid-dev/outbid/orchestrator/sanitize"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// longestReason limits a plugin's reason for not bidding, in bytes.
const longestReason = 200

// answer checks a response. The error says which sweep's bid is invalid, and why.
func answer(
	offer *bidder.Offer, states []*bidder.AppState, resp *outbidv1.BidResponse,
) ([]bidder.Table, error) {
	if got, want := len(resp.GetTables()), len(states); got != want {
		return nil, fmt.Errorf("it returned %d tables for %d states", got, want)
	}
	tables := make([]bidder.Table, len(states))
	for i, m := range resp.GetTables() {
		if said := m.GetRefused(); said != "" {
			tables[i].Refused = "it does not bid: " + sanitize.Line(said, longestReason)
			continue
		}
		if n := len(m.GetRows()); n > bidder.MaxRows {
			return nil, fmt.Errorf("its bid for %s has %d rows, more than %d", states[i].App, n, bidder.MaxRows)
		}
		tables[i] = fromTable(m)
		if err := check(&tables[i], offer, states[i]); err != nil {
			return nil, fmt.Errorf("its bid for %s %w", states[i].App, err)
		}
	}
	return tables, nil
}

// check returns why a table is invalid, or nil. The text follows "its bid for x".
func check(t *bidder.Table, offer *bidder.Offer, s *bidder.AppState) error {
	if !sound(t.Rho) {
		return fmt.Errorf("has rho %v without devices; it must be finite and above 0", t.Rho)
	}
	if !sound(t.Ideal) {
		return fmt.Errorf("has an ideal time of %v s; it must be finite and above 0", t.Ideal)
	}
	for i, row := range t.Rows {
		if !sound(row.Rho) {
			return fmt.Errorf("has rho %v in row %d; it must be finite and above 0", row.Rho, i)
		}
		if err := offer.Check(s, row.Gangs); err != nil {
			return fmt.Errorf("%w (row %d)", err, i)
		}
	}
	return nil
}

func sound(x float64) bool { return x > 0 && !math.IsInf(x, 0) }
