package baseline

import (
	"fmt"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/policy"
)

// DRF is dominant resource fairness by progressive filling (Ghodsi et al., NSDI 2011, algorithm 1): the next grant goes
// to the tenant with the smallest dominant share of devices, CPU cores and memory, and within the tenant to the sweep
// with the smallest, so that ten sweeps of one team count no more than one of another. A tenant's share is divided by
// its weight (section 4.3). DRF does not preempt: shares even out as trials release their devices.
type DRF struct{ stateless }

// Name implements policy.Policy.
func (DRF) Name() string { return "drf" }

// Decide implements policy.Policy.
func (DRF) Decide(v *policy.View) policy.Plan {
	const round = "the smallest dominant share first"
	p := policy.Extend(v)
	if p.Free().FreeDevices() == 0 {
		return p.Plan(round, "")
	}
	f := newFilling(v)
	for p.Free().FreeDevices() > 0 {
		s := f.poorest()
		if s == nil {
			break
		}
		j := s.jobs[0]
		s.jobs = s.jobs[1:]
		g, ok := p.Free().Best(j.Demand)
		if !ok {
			f.unplaceable.Add(j.Demand)
			continue
		}
		reason := fmt.Sprintf("tenant %s held the smallest dominant share, %.3g, and its sweep %.3g of it",
			j.App.Tenant, s.tenant.share(f.total), s.held.dominant(f.total))
		if p.PlaceOn(j, g, reason) {
			s.hold(g.Size(), j)
		}
	}
	return p.Plan(round, "")
}

// filling is the state of progressive filling.
type filling struct {
	total amounts
	// sweeps that may still get something, in order of submission.
	sweeps      []*sweep
	unplaceable policy.Unplaceable
}

// sweep holds what a sweep and its tenant hold, and its waiting jobs, longest waiting first.
type sweep struct {
	held   amounts
	tenant *owner
	jobs   []*policy.Job
}

// owner holds a tenant's holdings and weight.
type owner struct {
	amounts
	weight float64
}

// share returns the tenant's dominant share over its weight.
func (o *owner) share(total amounts) float64 { return o.dominant(total) / o.weight }

func newFilling(v *policy.View) *filling {
	f := &filling{total: totals(v)}
	tenants := map[string]*owner{}
	sweeps := make([]sweep, len(v.Apps))
	for i, a := range v.Apps {
		if tenants[a.Tenant] == nil {
			tenants[a.Tenant] = &owner{weight: v.TenantWeight(a.Tenant, nil)}
		}
		s := &sweeps[i]
		s.tenant = tenants[a.Tenant]
		for _, j := range a.Jobs {
			if j.Running() {
				s.hold(j.Gang().Size(), j)
			} else if j.Waiting() {
				s.jobs = append(s.jobs, j)
			}
		}
		if len(s.jobs) > 0 {
			slices.SortStableFunc(s.jobs, func(a, b *policy.Job) int { return a.Queued.Compare(b.Queued) })
			f.sweeps = append(f.sweeps, s)
		}
	}
	return f
}

func (s *sweep) hold(devices int, j *policy.Job) {
	more := amounts{float64(devices), j.Demand.CPUs, float64(j.Demand.Memory)}
	s.held.add(more)
	s.tenant.add(more)
}

// poorest returns the sweep that comes next, the earliest among equals, or nil if no sweep has a job that may find a
// place. It drops sweeps without such jobs.
func (f *filling) poorest() *sweep {
	var best *sweep
	var bestTenant, bestHeld float64
	still := f.sweeps[:0]
	for _, s := range f.sweeps {
		for len(s.jobs) > 0 && f.unplaceable.Covers(s.jobs[0].Demand) {
			s.jobs = s.jobs[1:]
		}
		if len(s.jobs) == 0 {
			continue
		}
		still = append(still, s)
		tenant, held := s.tenant.share(f.total), s.held.dominant(f.total)
		if best == nil || tenant < bestTenant || tenant == bestTenant && held < bestHeld {
			best, bestTenant, bestHeld = s, tenant, held
		}
	}
	f.sweeps = still
	return best
}

// amounts of devices, CPU cores and bytes of memory.
type amounts [3]float64

func (a *amounts) add(b amounts) {
	for i := range a {
		a[i] += b[i]
	}
}

// dominant returns the largest share of any resource.
func (a amounts) dominant(total amounts) float64 {
	share := 0.0
	for i := range a {
		if total[i] > 0 {
			share = max(share, a[i]/total[i])
		}
	}
	return share
}

func totals(v *policy.View) amounts {
	var total amounts
	for i := range v.Nodes {
		n := &v.Nodes[i]
		total.add(amounts{float64(len(n.Devices)), n.CPUs, float64(n.Memory)})
	}
	return total
}
