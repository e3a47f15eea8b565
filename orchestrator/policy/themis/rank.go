package themis

import (
	"cmp"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/policy"
)

// ranked is an app and what it is ranked by.
type ranked struct {
	standing
	// rho is the app's cached finish-time fairness; idle says that it holds nothing, so that its rho has no bound, and
	// waited for how long that has been so, in units of its T_id.
	rho, waited float64
	idle        bool
	// content: it neither holds nor wants anything.
	content bool
	// beside: it is asked beside the worst 1-f, as the option of that name has it.
	beside bool
	// last: it is not asked, and has what is left over after all others.
	last bool
	// ideal is its T_id in seconds as it is by now.
	ideal float64
	// passedOver is what its rho will come to if it is not asked in this round (rank=passed-over).
	passedOver float64
}

// rank orders all live apps, the worst off first. By rank=rho (pseudocode 1, line 16) that is by the cached rho of the
// last auction or leftover grant. Those that hold nothing, and want something, have no bound on theirs and come first; among
// them who has waited longest, in units of its T_id, so that short apps do not starve behind long ones; of those that came
// together, the shortest. Those that neither hold nor want anything come last: they have no use for a turn.
func rank(v *policy.View, all []standing, known map[string]*memory, set *settings) []ranked {
	order := make([]ranked, len(all))
	for i, s := range all {
		m := known[s.app.ID]
		r := ranked{standing: s, rho: m.rho(v, s.app), idle: !m.IdleSince.IsZero(), ideal: m.ideal(v, s.app)}
		r.content = r.idle && len(s.open) == 0
		if r.idle {
			r.waited = v.Now.Sub(m.IdleSince).Seconds() / r.ideal
		}
		r.beside = set.newcomers && r.idle && m.IdleSince.Equal(s.app.Submitted) ||
			set.short && m.shortest(v, s.app) <= set.lease.Seconds()
		if set.rank == passedOver {
			r.passedOver = m.passedOver(v, s.app, s.keeps, set.lease.Seconds())
		}
		order[i] = r
	}
	compare := byRho
	switch {
	case set.rank == passedOver:
		compare = byPassedOver
	case set.idle == "cached":
		compare = byCachedRho
	}
	slices.SortStableFunc(order, compare)
	return order
}

func byPassedOver(a, b ranked) int { return cmp.Compare(b.passedOver, a.passedOver) }

func byCachedRho(a, b ranked) int { return cmp.Compare(b.rho, a.rho) }

func byRho(a, b ranked) int {
	switch {
	case a.content != b.content:
		if a.content {
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
