// Package outbid is the policy of that name, which combines ideas of five papers.
//
// A round divides the devices on offer among tenants by their long-term share (ASTRAEA, package accounts): one by one
// to the tenant that has had the least of its share, at most as many as it asks for, and first to tenants below their
// floor, a part of their quota. Within its tenant's part a sweep bids as in Themis: all sweeps are asked, and one
// partial allocation auction with hidden payments, in which no tenant can win more than its part, decides by
// finish-time fairness, computed from the rates measured on each device type. The rest of the parts goes to any sweep
// that can use it, tenants in turns. Devices that would then idle go to forks of trials that may be forked (HadarE,
// package forking), for fork slots that are shorter than a lease, so these devices are the first to be available to
// newly submitted sweeps.
//
// Sweeps that state a utility are admitted by price (OASiS, package pricing); those that are not admitted get only what
// would idle.
//
// While one tenant has all sweeps, they take the place of tenants: the offer is divided among them by their long-term
// shares. With one sweep, no utility and no trial that may be forked, a round is Themis's, except that leftovers of
// unlike devices are assigned by measured rates (Hadar).
package outbid

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/bidder"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/themis"
)

// Policy is the policy outbid.
type Policy struct {
	arbiter *themis.Policy
	set     settings
	books   books
	// admitted holds the admitted sweeps with a utility, and lastReasons the reasons last given to those that were not
	// admitted.
	admitted    map[string]bool
	lastReasons admissions
}

var (
	_ policy.Bidding    = (*Policy)(nil)
	_ policy.Preemptive = (*Policy)(nil)
	_ policy.Forking    = (*Policy)(nil)
)

// settings are the policy's own options and variant; its arbiter has Themis's.
type settings struct {
	Variant

	// floor is the part of its quota that a tenant gets whatever it had before. horizon is in seconds, 0 for none.
	floor, horizon float64
	// priced means that sweeps which state a utility are admitted by price.
	priced bool
	// slot is how long forks train before they are averaged and release their devices.
	slot time.Duration
}

// Variant selects rules that differ from the default ones, for comparisons. No option of the product changes them; the
// lab (orchestrator/lab/policy/ablation) has options for them.
type Variant struct {
	// Arbiter is the variant of Themis's arbiter.
	Arbiter themis.Variant
	// ByTenant divides the offer among tenants by their long-term share; otherwise all sweeps bid for all of it.
	ByTenant bool
	// BySweep divides the offer in the same way among the sweeps if one tenant has them all.
	BySweep bool
	// AskAll asks all sweeps of a tenant, not only the worst 1-f.
	AskAll bool
	// ByRate assigns leftovers by measured rates.
	ByRate bool
	// ForksFill gives forks the leftovers; otherwise sweeps also bid for forks.
	ForksFill bool
}

// Default returns the variant that the product uses.
func Default() Variant {
	return Variant{Arbiter: themis.Default(), ByTenant: true, BySweep: true, AskAll: true, ByRate: true, ForksFill: true}
}

// New makes the policy from its options.
func New(o *policy.Options) policy.Policy { return NewVariant(o, Default()) }

// NewVariant makes a variant of the policy from its options.
func NewVariant(o *policy.Options, v Variant) *Policy {
	p := &Policy{arbiter: themis.NewVariant(o, v.Arbiter), set: settings{Variant: v}}
	p.set.floor = o.Float("floor", 0.5, 0, 1, "fraction of its quota that a tenant may have however much it had before; 0 for ASTRAEA's rule")
	p.set.horizon = 86400 * o.Float("horizon", 7, 0, 3650, "days after which past use counts for a third; 0 to count it in full as in ASTRAEA")
	p.set.priced = o.Text("admission", "price", "how sweeps with a utility are admitted: price, by price; or none, always", "price", "none") == "price"
	p.set.slot = o.Duration("slot", 3*time.Minute, "how long forks of a trial train before they are averaged and their devices are on offer again; "+
		"at most a lease")
	p.books = newBooks()
	return p
}

// Name implements policy.Policy.
func (*Policy) Name() string { return "outbid" }

// Preempts implements policy.Preemptive.
func (*Policy) Preempts() bool { return true }

// ForksJobs implements policy.Forking.
func (*Policy) ForksJobs() bool { return true }

// GrowsJobs implements policy.Growing.
func (p *Policy) GrowsJobs() bool { return p.arbiter.GrowsJobs() }

// UseBidder implements policy.Bidding.
func (p *Policy) UseBidder(a bidder.Bidder) { p.arbiter.UseBidder(a) }

// snapshot is the policy's state and that of its arbiter.
type snapshot struct {
	Arbiter  json.RawMessage
	Books    books
	Admitted map[string]bool `json:",omitempty"`
	Told     admissions      `json:",omitempty"`
}

// Snapshot implements policy.Policy.
func (p *Policy) Snapshot() ([]byte, error) {
	arbiter, err := p.arbiter.Snapshot()
	if err != nil {
		return nil, fmt.Errorf("outbid: %w", err)
	}
	return json.Marshal(snapshot{arbiter, p.books, p.admitted, p.lastReasons})
}

// Restore implements policy.Policy.
func (p *Policy) Restore(b []byte) error {
	s := snapshot{Books: newBooks()}
	if err := json.Unmarshal(b, &s); err != nil {
		return fmt.Errorf("outbid: snapshot: %w", err)
	}
	if err := p.arbiter.Restore(s.Arbiter); err != nil {
		return fmt.Errorf("outbid: %w", err)
	}
	p.books, p.admitted, p.lastReasons = s.Books, s.Admitted, s.Told
	return nil
}

// Decide implements policy.Policy.
func (p *Policy) Decide(v *policy.View) policy.Plan {
	p.books.update(v, &p.set)
	refused := p.admit(v)
	shared := p.books.share(v, &p.set, p.arbiter.Lease(), refused)
	plan := p.arbiter.DecideBy(v, themis.Rules{Division: shared.division(), Last: refused.last(), ForksFill: p.set.ForksFill, ByRate: p.set.ByRate, Slot: p.set.slot})
	shared.explain(&plan)
	p.explain(&plan, refused)
	p.books.recordHoldings(v, plan)
	return plan
}

// admit decides about the sweeps that state a utility.
func (p *Policy) admit(v *policy.View) admissions {
	if !p.set.priced || !slices.ContainsFunc(v.Apps, func(a *policy.App) bool { return a.Utility != nil }) {
		p.admitted = nil
		return nil
	}
	var refused admissions
	refused, p.admitted = admit(v, devicesByWeight(v), p.admitted)
	return refused
}

// last returns a function that reports whether a sweep gets only what would idle, or nil if no sweep is refused.
func (r admissions) last() func(*policy.App) bool {
	if len(r) == 0 {
		return nil
	}
	return func(a *policy.App) bool { return r[a.ID] != "" }
}

// explain adds to the plan's reasons which sweeps are not admitted, if that has changed.
func (p *Policy) explain(plan *policy.Plan, refused admissions) {
	for i := range plan.Grants {
		g := &plan.Grants[i]
		if why := refused[g.Job.App.ID]; why != "" {
			g.Reason += "; " + why + ", so it has what would idle"
		}
	}
	var news []string
	for _, id := range slices.Sorted(maps.Keys(refused)) {
		if p.lastReasons[id] == "" {
			news = append(news, id+" is "+refused[id])
		}
	}
	for _, id := range slices.Sorted(maps.Keys(p.lastReasons)) {
		if p.admitted[id] {
			news = append(news, id+" is admitted")
		}
	}
	p.lastReasons = refused
	if len(news) > 0 {
		plan.Reason = strings.TrimPrefix(plan.Reason+"; "+strings.Join(news, "; "), "; ")
	}
}
