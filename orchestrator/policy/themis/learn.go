package themis

import (
	"maps"

	"github.com/outbid-dev/outbid/orchestrator/bidder"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// learn returns the memory after an auction, and the rho of each sweep in the ranking with its present devices. Both
// come from the arbiter's own tables, not from those of outside bidders: over-reporting must not make a sweep visible.
func learn(
	v *policy.View, order []ranked, awards []award, shares []share, known map[string]*memory, set *settings,
) (after map[string]*memory, rhos []float64) {
	after, rhos = maps.Clone(known), make([]float64, len(order))
	for i := range order {
		rhos[i] = order[i].rho
		if m := known[order[i].app.ID]; m != nil {
			rhos[i] = m.rhoWith(v, order[i].app, shares[i].devices)
		}
	}
	for i := range awards {
		b := awards[i].bid
		if b.own.Ideal <= 0 {
			continue
		}
		a, s := order[b.index].app, &shares[b.index]
		rhos[b.index] = bestRho(&b.own, devicesOf(s.won)+devicesOf(s.leftover))
		after[a.ID] = remember(v, a, known[a.ID], b.state, tableReport{rhos[b.index], b.own.Ideal, s.devices}, set)
	}
	return after, rhos
}

func devicesOf(lots []*outbidv1.Lot) int {
	n := 0
	for _, l := range lots {
		n += int(l.GetDevices())
	}
	return n
}

// bestRho returns a table's rho for a number of devices: that of the best row with at most as many devices.
func bestRho(t *bidder.Table, devices int) float64 {
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
