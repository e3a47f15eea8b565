package baseline

import (
	"maps"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/policy"
)

// YARN is Apache YARN's capacity scheduler as used for virtual clusters (Jeon et al., "Analysis of Large-Scale
// Multi-Tenant GPU Clusters", ATC 2019, section 2; the baseline YARN-CS of Hadar and ASTRAEA). Each tenant has a queue
// with a share of the devices. The queue that uses the least of its share is served next, first in first out. A gang
// starts whole, on one node if it fits, otherwise on as few as possible. Nothing is preempted, and a job that does not
// fit is skipped. With Borrow a queue may use more than its share while others leave it, which makes the scheduler
// work-conserving; without it shares are static quotas.
type YARN struct {
	stateless
	// Shares of tenants relative to each other; tenants without an entry have their tenant weight.
	Shares map[string]float64
	Borrow bool
}

// Name implements policy.Policy.
func (YARN) Name() string { return "yarn-cs" }

// NewYARN makes it from options.
func NewYARN(o *policy.Options) YARN {
	return YARN{
		Shares: o.Weights("shares", "share of each tenant's queue relative to others, such as vision=2,speech=1; others have their tenant's weight"),
		Borrow: o.Bool("borrow", true, "let a queue use what others leave of their shares"),
	}
}

// Decide implements policy.Policy.
func (y YARN) Decide(v *policy.View) policy.Plan {
	p := policy.Extend(v)
	const round = "the queue that uses the least of its share first"
	if p.Free().FreeDevices() == 0 {
		return p.Plan(round, "")
	}
	queues := y.queues(v)
	var unplaceable policy.Unplaceable
	for p.Free().FreeDevices() > 0 {
		q := neediest(queues)
		if q == nil {
			break
		}
		j := q.jobs[0]
		q.jobs = q.jobs[1:]
		d := j.Demand
		if !y.Borrow {
			d.Max = min(d.Max, int(q.capacity)-q.used)
		}
		if d.Max < d.Min || unplaceable.Covers(d) {
			continue
		}
		if g, ok := p.Free().Best(d); ok && p.PlaceOn(j, g, "first in the queue that uses the least of its share") {
			q.used += g.Size()
		} else {
			unplaceable.Add(d)
		}
	}
	return p.Plan(round, "")
}

// queue is a tenant's queue.
type queue struct {
	capacity float64
	used     int
	jobs     []*policy.Job
}

// queues returns the queues of the tenants that have sweeps now, by name.
func (y YARN) queues(v *policy.View) []*queue {
	byTenant := map[string]*queue{}
	devices := 0
	for i := range v.Nodes {
		devices += len(v.Nodes[i].Devices)
	}
	for _, a := range v.Apps {
		q := byTenant[a.Tenant]
		if q == nil {
			q = &queue{}
			byTenant[a.Tenant] = q
		}
		for _, j := range a.Jobs {
			q.used += j.Gang().Size()
		}
	}
	for _, j := range v.Waiting() {
		q := byTenant[j.App.Tenant]
		q.jobs = append(q.jobs, j)
	}
	shares := maps.Clone(y.Shares)
	if shares == nil {
		shares = map[string]float64{}
	}
	sum := 0.0
	for tenant := range byTenant {
		shares[tenant] = v.TenantWeight(tenant, y.Shares)
	}
	for i := range v.Tenants { // an empty queue keeps its share
		shares[v.Tenants[i].Name] = v.TenantWeight(v.Tenants[i].Name, y.Shares)
	}
	for _, tenant := range slices.Sorted(maps.Keys(shares)) {
		sum += shares[tenant]
	}
	var all []*queue
	for _, tenant := range slices.Sorted(maps.Keys(byTenant)) {
		q := byTenant[tenant]
		q.capacity = float64(devices) * shares[tenant] / sum
		all = append(all, q)
	}
	return all
}

// neediest returns the queue with waiting jobs that uses the least of its share, the first by name among equals, or
// nil.
func neediest(queues []*queue) *queue {
	var best *queue
	for _, q := range queues {
		if len(q.jobs) > 0 && (best == nil || float64(q.used)/q.capacity < float64(best.used)/best.capacity) {
			best = q
		}
	}
	return best
}
