// Package astraea is the scheduler of Ye et al., "ASTRAEA: A Fair Deep Learning Scheduler for Multi-Tenant GPU Clusters"
// (TPDS 2022): long-term GPU-time fairness of tenants, and within a tenant of its jobs.
//
// Definition used. A tenant's rho is the device-time that it has had over the device-time that its share was worth: its
// quota, the cluster times its weight over all tenants' weights (equations 6 and 12; with eq. 16 the quota counts also
// while the tenant asks for less, so that what it lends comes back to it). All tenants are those that somebody added, and
// those that have had jobs. A job's rho is the device-time that it has had
// over the integral of what is fair while it is active: its part by weight of the smaller of the tenant's quota and demand,
// at most its own demand (equations 8 and 13 to 15). A round (algorithms 1 and 2) takes the tenant with the least rho, of its
// jobs the one with the least, places it on as few nodes as it can, and charges the tenant a term of its devices; the others
// follow until nothing fits. Newly submitted jobs come first within their tenant (section 6.1.1).
//
// Devices are leased for a term of 900 s. At a term's end the job is one that asks, its devices are up for grabs, and if it
// is chosen its lease is renewed: it goes on without a stop. Whoever is not chosen saves and leaves. There is a round whenever
// something changed; the paper's are 10 s apart (interval), in which devices that short trials give back would idle.
//
// Left to options because the paper does not say: whether a tenant whose next job finds no place is passed over for the
// round or only that job (blocked), and whether the terms of all jobs end together (terms). A horizon, which the paper does
// not have, forgets what lies further back, so that nobody who was away for months takes the cluster for weeks.
package astraea

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/policy"
)

// Policy is two-phase scheduling by long-term GPU-time fairness.
type Policy struct {
	term, interval time.Duration
	weights        map[string]float64
	// byDemand: a tenant's fair share is no more than it asks for (eq. 8), otherwise its quota (eq. 16).
	byDemand bool
	newFirst bool
	// skipTenant: a tenant whose next job finds no place is passed over for the round.
	skipTenant bool
	// together: the terms of all jobs end at the same time.
	together bool
	// horizon in seconds; 0 for none.
	horizon float64
	books   books
}

// New makes the policy from its options.
func New(o *policy.Options) policy.Policy {
	p := &Policy{
		term: o.Duration("term", 15*time.Minute, "term of a lease"),
		interval: time.Duration(o.Float("interval", 0, 0, 3600,
			"seconds from one round to the next at least; 0 for a round whenever something changed; the paper's is 10") * float64(time.Second)),
		weights: o.Weights("weights", "weights of tenants, such as vision=2,speech=1; others have what was set for them, or 1"),
		byDemand: o.Text("share", "quota", "a tenant's fair share: its quota (equation 16), or no more than it asks for (equation 8)",
			"quota", "demand") == "demand",
		newFirst: o.Bool("new-first", true, "within a tenant, jobs that have held nothing yet come first"),
		skipTenant: o.Text("blocked", "tenant", "who is passed over for a round where a job finds no place: its tenant, or the job",
			"tenant", "job") == "tenant",
		together: o.Text("terms", "own", "when terms end: each lease's own time after its grant, or together",
			"own", "together") == "together",
	}
	p.horizon = 86400 * o.Float("horizon", 0, 0, 3650, "days in which what a tenant had fades to a third; 0 for never, as in the paper")
	p.books = newBooks()
	return p
}

// Name implements policy.Policy.
func (p *Policy) Name() string { return "astraea" }

// Preempts implements policy.Preemptive: who holds devices may lose them at a term's end.
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
	jobs := p.enter(v)
	plan := policy.Plan{Reason: "nobody waits"}
	if p.books.Waited {
		plan = p.round(v, jobs, calm)
	}
	p.books.hold(v, plan)
	return plan
}
