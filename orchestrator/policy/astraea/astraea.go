// Package astraea is the scheduler of Ye et al., "ASTRAEA: A Fair Deep Learning Scheduler for Multi-Tenant GPU
// Clusters" (TPDS 2022): long-term fairness in GPU time among tenants, and among the jobs of a tenant.
//
// A tenant's rho is its device time over that of its share, which is its quota: the cluster times its weight over all
// tenants' weights (equations 6 and 12). With eq. 16 the quota also counts while the tenant asks for less, so it gets
// back what it lends. The tenants are those that were configured and those that have had jobs. A job's rho is its
// device time over the integral of its fair share while it is active: its part by weight of the smaller of the tenant's
// quota and demand, at most its own demand (equations 8 and 13 to 15). A round (algorithms 1 and 2) takes the tenant
// with the least rho and its job with the least rho, places the job on as few nodes as possible, and charges the tenant
// a term of its devices; then the next, until nothing fits. New jobs come first within their tenant (section 6.1.1).
//
// Devices are leased for a term of 900 s. At a term's end the job asks again and its devices are available to all; if
// it is chosen, its lease is renewed without a stop, otherwise it saves and leaves. There is a round at every change;
// the paper's rounds are 10 s apart (interval), during which devices released by short trials would idle.
//
// A Variant covers what the paper leaves open: whether a tenant whose next job finds no place is skipped for the round,
// or only that job, and whether the terms of all jobs end together. The option horizon, which the paper does not have, discounts older use, so that a tenant that was away for months does not get the cluster for weeks.
package astraea

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/policy"
)

// Policy is two-phase scheduling by long-term fairness in GPU time.
type Policy struct {
	Variant

	term, interval time.Duration
	// horizon in seconds; 0 for none.
	horizon float64
	books   books
}

// Variant selects rules that differ from the default ones, for comparisons. No option of the product changes them; the
// lab (orchestrator/lab/policy/ablation) has options for them.
type Variant struct {
	// Weights of tenants; others have their configured weight.
	Weights map[string]float64
	// ByDemand limits a tenant's fair share to its demand (eq. 8); otherwise it is its quota (eq. 16).
	ByDemand bool
	// NewFirst puts trials that have held nothing yet first within their tenant.
	NewFirst bool
	// SkipTenant skips a tenant for the round if its next trial finds no place; otherwise only the trial is skipped.
	SkipTenant bool
	// Together makes the terms of all trials end at the same time.
	Together bool
}

// Default returns the variant that the product uses.
func Default() Variant { return Variant{NewFirst: true, SkipTenant: true} }

// New makes the policy from its options.
func New(o *policy.Options) policy.Policy { return NewVariant(o, Default()) }

// NewVariant makes a variant of the policy from its options.
func NewVariant(o *policy.Options, v Variant) *Policy {
	return &Policy{
		Variant: v,
		term:    o.Duration("term", 15*time.Minute, "length of a lease"),
		interval: time.Duration(o.Float("interval", 0, 0, 3600,
			"least seconds between rounds; 0 for a round at every change; the paper has 10") * float64(time.Second)),
		horizon: 86400 * o.Float("horizon", 0, 0, 3650, "days after which past use counts for a third; 0 to count it in full as in the paper"),
		books:   newBooks(),
	}
}

// Name implements policy.Policy.
func (p *Policy) Name() string { return "astraea" }

// Preempts implements policy.Preemptive: a job may lose its devices at a term's end.
func (p *Policy) Preempts() bool { return true }

// Snapshot implements policy.Policy.
func (p *Policy) Snapshot() ([]byte, error) { return json.Marshal(p.books) }

// Restore implements policy.Policy.
func (p *Policy) Restore(b []byte) error {
	p.books = newBooks()
	if err := json.Unmarshal(b, &p.books); err != nil {
		return fmt.Errorf("astraea: snapshot: %w", err)
	}
	return nil
}

// Decide implements policy.Policy.
func (p *Policy) Decide(v *policy.View) policy.Plan {
	if next := p.books.Round.Add(p.interval); v.Now.Before(next) {
		return policy.Plan{Reason: "the next round is to come", Next: next}
	}
	calm := !p.books.Waited
	jobs := p.updateBooks(v)
	plan := policy.Plan{Reason: "nobody waits"}
	if p.books.Waited {
		plan = p.round(v, jobs, calm)
	}
	p.books.recordHoldings(v, plan)
	return plan
}
