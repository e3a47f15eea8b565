package themis

import (
	"cmp"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/policy"
)

// ranked is a sweep with its sort keys.
type ranked struct {
	sweepState
	// rho is the sweep's cached finish-time fairness. idle means that it holds nothing, so its rho is unbounded. waited
	// is how long it has held nothing, in units of its T_id.
	rho, waited float64
	idle        bool
	// inactive means that it neither holds nor wants anything.
	inactive bool
	// Set if an option asks it in addition to the worst 1-f.
	askedExtra bool
	// leftoversOnly means that it is not asked and gets leftovers after all others.
	leftoversOnly bool
	// ideal is its present T_id in seconds.
	ideal float64
	// passedOver is the rho that it will have if it is not asked in this round (Variant.Rank).
	passedOver float64
}

// rank orders all live sweeps, worst off first. With Rank "rho" (pseudocode 1, line 16) the key is the cached rho of the
// last auction or leftover grant. Sweeps that hold nothing but want something have an unbounded rho and come first:
// among them the one that has waited longest in units of its T_id, so that short sweeps do not starve behind long ones,
// and of those submitted together the shortest. Sweeps that neither hold nor want anything come last because they have
// no use for a turn.
func rank(v *policy.View, all []sweepState, known map[string]*memory, set *settings) []ranked {
	order := make([]ranked, len(all))
	for i, s := range all {
		m := known[s.app.ID]
		r := ranked{sweepState: s, rho: m.rho(v, s.app), idle: !m.IdleSince.IsZero(), ideal: m.ideal(v, s.app)}
		r.inactive = r.idle && len(s.open) == 0
		if r.idle {
			r.waited = v.Now.Sub(m.IdleSince).Seconds() / r.ideal
		}
		r.askedExtra = set.Newcomers && r.idle && m.IdleSince.Equal(s.app.Submitted) ||
			set.Short && m.shortest(v, s.app) <= set.lease.Seconds()
		if set.Rank == passedOver {
			r.passedOver = m.passedOver(v, s.app, s.keeps, set.lease.Seconds())
		}
		order[i] = r
	}
	compare := byRho
	switch {
	case set.Rank == passedOver:
		compare = byPassedOver
	case set.Idle == "cached":
		compare = byCachedRho
	}
	slices.SortStableFunc(order, compare)
	return order
}

func byPassedOver(a, b ranked) int { return cmp.Compare(b.passedOver, a.passedOver) }

func byCachedRho(a, b ranked) int { return cmp.Compare(b.rho, a.rho) }

func byRho(a, b ranked) int {
	switch {
	case a.inactive != b.inactive:
		if a.inactive {
			return 1
		}
		return -1
	case a.idle && b.idle:
		return cmp.Or(cmp.Compare(b.waited, a.waited), cmp.Compare(a.ideal, b.ideal))
	case a.idle:
		return -1
	case b.idle:
		return 1
	}
	return cmp.Compare(b.rho, a.rho)
}
