package themis

import (
	"fmt"
	"slices"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/bidder"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/themis/auction"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Decide implements policy.Policy. Each phase of a round uses the results of earlier ones: reservations and expired
// leases, the state of each sweep, the memory, the ranking; then, if something is on offer, the sweeps to ask, the
// offer, bids, awards and places; finally the new memory and the plan.
func (p *Policy) Decide(v *policy.View) policy.Plan { return p.DecideBy(v, Rules{}) }

// Rules are additions by a policy that is built on Themis's rounds. The zero value is Themis.
type Rules struct {
	// Division divides the offer among groups of sweeps; nil for none.
	Division *Division
	// Last reports whether a sweep is not asked and gets leftovers after all others; nil for none.
	Last func(*policy.App) bool
	// ForksFill means that sweeps neither bid for forks nor have a claim to them: forks get what is left when all
	// trials have their devices.
	ForksFill bool
	// ByRate means that leftovers go to a trial on the device type on which it was measured to be fastest, and that a
	// trial whose lease has expired moves to a free faster type.
	ByRate bool
	// Slot is how long forks of a trial train before they are averaged, if that is less than a lease; 0 for a lease.
	Slot time.Duration
}

// DecideBy decides a round with the rules of another policy.
func (p *Policy) DecideBy(v *policy.View, rules Rules) policy.Plan {
	plan := policy.Extend(v)
	until := p.set.terms(v, rules.Slot)
	plan.UntilBy(until.lease)
	rests := betweenSlots(v, plan)
	secured, reserved, patience := claimReserved(v, plan, withStays(v, p.Reservations), p.set.lease, until, p.set.fulfilled())
	expired, ends := expiredTrials(v, p.Ends)
	grown, look := p.grow(v, plan, expired)
	offered := newSupply(expired, rests, secured)
	p.Seen = forgetEnded(v, p.Seen)
	held := p.auction(v, plan, offered, &rules)
	p.Seen = held.known

	held.allocator.planForkSets(until)
	reserved = append(reserved, plan.Reservations()...)
	decided := held.allocator.finishPlan(reserved)
	for _, g := range decided.Grants {
		ends = earlier(ends, g.TermEnd)
	}
	for _, r := range decided.Renews {
		ends = earlier(ends, r.TermEnd)
	}
	if len(reserved) > 0 {
		ends = earlier(ends, p.set.termEnd(v.Now, ""))
	}
	if ends.After(v.Now) {
		decided.Next = ends
	}
	decided.Next = earlier(decided.Next, look)
	if len(reserved) > 0 {
		decided.Next = earlier(decided.Next, patience)
	}
	p.Reservations, p.Ends = reserved, ends
	changes := len(decided.Grants)+len(decided.Renews)+len(decided.Revokes) > 0
	if changes {
		decided.Reason = fmt.Sprintf("auction among %d of %d apps", len(held.awards), len(held.order))
	}
	if grown {
		decided.Reason = "running jobs have more of what is idle"
	}
	if changes || held.hasOutsideBids() {
		decided.Auction = held.record
	}
	return decided
}

// auctioned is the result of a round's auction. Without an auction it has only an empty allocator.
type auctioned struct {
	// known is the memory of sweeps after it.
	known     map[string]*memory
	order     []ranked
	awards    []award
	allocator *allocator
	// record is nil if no sweep was asked.
	record *outbidv1.Auction
}

// hasOutsideBids reports whether an outside bidder answered: its answers are recorded even if the plan is empty.
func (a *auctioned) hasOutsideBids() bool {
	return slices.ContainsFunc(a.awards, func(w award) bool { return w.isOutside() })
}

// auction ranks the sweeps, asks the worst off, and plans what they won and the leftovers.
func (p *Policy) auction(v *policy.View, plan *policy.Planner, s *supply, rules *Rules) *auctioned {
	if !s.hasTrade(v) {
		return &auctioned{known: p.Seen, allocator: newAllocator(v, plan, s, nil, &p.set)}
	}
	stock := v.Stock()
	state := func(a *policy.App) *bidder.AppState {
		st := v.AppState(a, stock, func(j *policy.Job) (held, lost bidder.Holding) { return s.holdings(v, j) })
		if p.set.OwnWeights {
			st.Weight = a.Weight
		}
		if rules.ForksFill {
			withoutForks(st)
		}
		p.set.distortWork(st)
		return st
	}
	all := sweepStates(v, s)
	known := recall(v, s, all, p.Seen, &p.set, state)
	a := &auctioned{known: known, order: rank(v, all, known, &p.set)}
	for i := range a.order {
		a.order[i].leftoversOnly = rules.Last != nil && rules.Last(a.order[i].app)
	}
	a.allocator = newAllocator(v, plan, s, a.order, &p.set)
	a.allocator.byRate = rules.ByRate
	a.allocator.parts = rules.Division.divide(a.order, a.allocator.devicesOnOffer())
	asked := a.allocator.parts.askGroups(a.order, a.allocator.offeredByType(), &p.set)
	if len(asked) == 0 {
		a.allocator.leftovers(nil, p.set.Leftover, p.rng)
		return a
	}
	states := make([]*bidder.AppState, len(asked))
	for i, of := range asked {
		states[i] = state(a.order[of].app)
	}
	offer := offerTo(v, s, states)
	bids := collect(offer, asked, states, p.bidders, &p.set)
	var result *auction.Result
	a.awards, result = runAuction(offer, bids, a.allocator.parts, &p.set, p.rng)
	a.allocator.placeWins(a.awards)
	a.allocator.leftovers(asked, p.set.Leftover, p.rng)
	var after []float64
	a.known, after = learn(v, a.order, a.awards, a.allocator.shares, known, &p.set)
	a.record = (&recordInput{
		set: &p.set, apps: len(v.Apps), offer: offer, result: result, order: a.order, awards: a.awards,
		shares: a.allocator.shares, known: a.known, after: after,
	}).record()
	return a
}

// withoutForks makes a bidder bid for one gang per trial.
func withoutForks(st *bidder.AppState) {
	st.Forks, st.LeastForks = 0, 0
	for i := range st.Jobs {
		st.Jobs[i].Forks, st.Jobs[i].LeastForks = 0, 0
	}
}

// forgetEnded drops the memory of sweeps that have ended once there are many.
func forgetEnded(v *policy.View, seen map[string]*memory) map[string]*memory {
	if len(seen) <= 2*len(v.Apps)+16 {
		return seen
	}
	live := make(map[string]*memory, len(v.Apps))
	for _, a := range v.Apps {
		if m := seen[a.ID]; m != nil {
			live[a.ID] = m
		}
	}
	return live
}
