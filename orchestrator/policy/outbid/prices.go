package outbid

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/pricing"
)

// Sweeps that state the utility of their end are admitted by price (OASiS); all others always are. The price is for a
// device-second in the part of the tenant's devices that such sweeps have by weight. It ranges from a quarter of the
// lowest worth per device-second of any of them, while none of the part is used, to the highest worth, when all is
// (package pricing). An admitted sweep stays admitted while its end has a worth; of the others, those with the highest
// worth per device-second come first. A sweep that is not admitted is not asked for bids, and gets what would idle
// after all others. So a utility buys nothing beyond the auction, and overstating it has the same effect as stating
// none.

// offer describes a sweep that states a utility.
type offer struct {
	app *policy.App
	// seconds is the device-seconds that it still needs, devices how many it could use at once, and worth the utility
	// of its end if it gets them.
	seconds, devices, worth float64
	// known means that its rate was measured and the length of its trials is known.
	known, admitted bool
}

// density returns its worth per device-second.
func (o *offer) density() float64 { return o.worth / max(o.seconds, 1) }

// offerOf returns the current offer of a sweep.
func offerOf(v *policy.View, a *policy.App) offer {
	o := offer{app: a, known: true}
	for _, j := range a.Jobs {
		n := max(1, j.Demand.Min, j.Demand.Max)
		rate := 0.0
		for _, kind := range v.Free.Types() {
			if j.Demand.Accepts(kind) && j.Speeds != nil && j.Speeds.Knows(kind) {
				rate = max(rate, j.Speeds.Rate(kind, n, cluster.SameMachine))
			}
		}
		if j.Running() {
			rate = max(rate, v.Rate(j, j.Gang()))
		}
		left := v.StepsLeft(j)
		if rate <= 0 || max(j.TotalSteps, j.UntilStep) == 0 {
			o.known = false
			return o
		}
		takes := left / rate
		o.seconds += takes * float64(n)
		o.devices += float64(n)
		if ends := v.Now.Sub(j.Created).Seconds() + takes; a.Deadline.IsZero() || v.Now.Sub(a.Deadline).Seconds()+takes <= 0 {
			o.worth += a.Utility.Value(ends)
		}
	}
	return o
}

// admissions holds the reason for every sweep with a utility that is not admitted.
type admissions map[string]string

// admit decides about the sweeps of each tenant that state a utility. was holds those that were admitted, and the
// second result those that now are.
func admit(v *policy.View, parts map[string]float64, was map[string]bool) (refused admissions, is map[string]bool) {
	type group struct {
		offers       []offer
		said, weight float64
	}
	tenants, order := map[string]*group{}, []string{}
	for _, a := range v.Apps {
		g := tenants[a.Tenant]
		if g == nil {
			g = &group{}
			tenants[a.Tenant], order = g, append(order, a.Tenant)
		}
		g.weight += policy.WeightOrOne(a.Weight)
		if a.Utility == nil || a.Paused || len(a.Jobs) == 0 {
			continue
		}
		g.said += policy.WeightOrOne(a.Weight)
		o := offerOf(v, a)
		o.admitted = was[a.ID]
		g.offers = append(g.offers, o)
	}
	refused, is = admissions{}, map[string]bool{}
	for _, name := range order {
		if g := tenants[name]; len(g.offers) > 0 {
			admitOffers(g.offers, parts[name]*g.said/g.weight, refused, is)
		}
	}
	return refused, is
}

// admitOffers sets the prices for a number of devices, and decides about the offers in order.
func admitOffers(offers []offer, devices float64, refused admissions, is map[string]bool) {
	between := pricing.Range{Low: math.Inf(1)}
	for i := range offers {
		if o := &offers[i]; o.known && o.worth > 0 {
			between.Low, between.High = min(between.Low, o.density()/4), max(between.High, o.density())
		}
	}
	slices.SortStableFunc(offers, func(a, b offer) int {
		if a.admitted != b.admitted {
			if a.admitted {
				return -1
			}
			return 1
		}
		return cmp.Compare(b.density(), a.density())
	})
	used := 0.0
	for i := range offers {
		o := &offers[i]
		cost := between.Of(used, devices) * o.seconds
		switch {
		case !o.known:
			is[o.app.ID] = true // not measured yet
			continue
		case o.worth <= 0:
			refused[o.app.ID] = "not admitted: its end would be worth nothing any more"
			continue
		case !o.admitted && o.worth <= cost:
			refused[o.app.ID] = fmt.Sprintf("not admitted now: would cost %.3g and be worth %.3g", cost, o.worth)
			continue
		}
		is[o.app.ID] = true
		used += o.devices
	}
}
