package themis

import (
	"cmp"
	"math"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/policy"
)

// rank orders all live apps, the worst off first. By rank=rho (pseudocode 1, line 16) that is by the cached rho of the
// last auction or leftover grant. Those that hold nothing have no bound on theirs and come first; among them who has
// waited longest, in units of its T_id, so that short apps do not starve behind long ones; of those that came together, the
// shortest.
func (r *round) rank() {
	for _, a := range r.v.Apps {
		if a.Paused {
			continue
		}
		b := &bidder{app: a, row: -1, keeps: 1}
		m := r.current(a)
		b.rho, b.idle = m.rho(r.v, a), !m.IdleSince.IsZero()
		if b.ideal = m.ideal(r.v, a); b.idle {
			b.waited = r.v.Now.Sub(m.IdleSince).Seconds() / b.ideal
		}
		if r.p.set.rank == passedOver {
			b.passedOver = m.passedOver(r.v, a, r.claim(a).devices, r.p.set.lease.Seconds())
		}
		r.bidders = append(r.bidders, b)
	}
	slices.SortStableFunc(r.bidders, r.worse)
}

// worse compares two bidders for rank.
func (r *round) worse(a, b *bidder) int {
	switch {
	case r.p.set.rank == passedOver:
		return cmp.Compare(b.passedOver, a.passedOver)
	case a.idle && b.idle:
		return cmp.Or(cmp.Compare(b.waited, a.waited), cmp.Compare(a.ideal, b.ideal))
	case a.idle:
		return -1
	case b.idle:
		return 1
	}
	return cmp.Compare(b.rho, a.rho)
}

// visible marks those that the offer is made to (line 17), and returns those of them that want something: the worst 1-f of
// all live apps, at least one. With cover, no more of them than it takes to use what is on offer so many times; apps that
// hold all they can use are then asked beside the others.
func (r *round) visible() []*bidder {
	n := max(1, int(math.Ceil((1-r.p.set.knob)*float64(len(r.bidders))-1e-9)))
	var asked []*bidder
	if r.p.set.cover == 0 {
		for _, b := range r.bidders[:min(n, len(r.bidders))] {
			if r.wanting(b.app) {
				asked = append(asked, b)
			}
		}
	} else {
		asked = r.covering(n)
	}
	for _, b := range asked {
		b.asked = true
	}
	return asked
}

// covering is who is asked with the option cover.
func (r *round) covering(n int) []*bidder {
	var asked []*bidder
	supply := float64(r.v.Free.FreeDevices()+r.onOffer()) * r.p.set.cover
	for _, b := range r.bidders {
		if !r.wanting(b.app) {
			continue
		}
		asked = append(asked, b)
		if !sated(b.app) {
			n--
		}
		for _, j := range r.claim(b.app).jobs {
			supply -= float64(max(1, j.Demand.Max))
		}
		if n <= 0 || supply <= 0 {
			break
		}
	}
	return asked
}

// sated says whether an app's jobs all hold as much as they can use.
func sated(a *policy.App) bool {
	for _, j := range a.Jobs {
		if j.Waiting() || j.Running() && (j.Ending || j.Gang.Size() < j.Demand.Max) {
			return false
		}
	}
	return true
}
