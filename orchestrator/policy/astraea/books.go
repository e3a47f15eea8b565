package astraea

import (
	"maps"
	"slices"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/astraea/accounts"
)

// books holds the integrals that fairness is measured by. They are updated at each round, so a job that begins and ends
// between two rounds is missing in its tenant's; a job's own device time is exact because the view has it.
type books struct {
	// Round is the time of the last round, and Waited whether a job waited then.
	Round  time.Time
	Waited bool
	// TermEnd is when all terms end if they end together.
	TermEnd time.Time
	Tenants map[string]*account
	Jobs    map[policy.JobName]*record
	// entered counts rounds, to find the records of jobs that are gone.
	entered uint64
}

func newBooks() books {
	return books{Tenants: map[string]*account{}, Jobs: map[policy.JobName]*record{}}
}

// account is a tenant's account, with its jobs by class.
type account struct {
	accounts.Account

	Classes []class
}

// class holds a tenant's active jobs with the same demand per weight. The fair share of a job of weight w is the
// integral of min(demand, w * s), with the same s for all of the tenant's jobs; that is w times the integral of
// min(ratio, s).
type class struct {
	Ratio, Integral float64
	Jobs            int
}

// record is the record of an active job: one that holds devices or waits for some. A trial that was paused and waits
// again gets a new record.
type record struct {
	Tenant        string
	Ratio, Weight float64
	// Before is its class's integral, and Had its device-seconds, when it became active.
	Before, Had float64
	// seen is the number of the last round in which it was active.
	seen uint64
}

// share returns s: the fair share of a job of weight 1, in devices.
func (a *account) share() float64 {
	if a.Active == 0 || a.Weights <= 0 {
		return 0
	}
	return min(a.Demand, a.Quota) / a.Weights
}

func (a *account) class(ratio float64) *class {
	for i := range a.Classes {
		if a.Classes[i].Ratio == ratio {
			return &a.Classes[i]
		}
	}
	a.Classes = append(a.Classes, class{Ratio: ratio})
	return &a.Classes[len(a.Classes)-1]
}

// advance adds the time since the last round.
func (a *account) advance(seconds float64, byDemand bool, horizon float64) {
	a.Advance(seconds, byDemand, horizon)
	share := a.share()
	for i := range a.Classes {
		a.Classes[i].Integral += min(a.Classes[i].Ratio, share) * seconds
	}
}

// removeJob removes a job that is no longer active from its class.
func (a *account) removeJob(ratio float64) {
	for i := range a.Classes {
		if c := &a.Classes[i]; c.Ratio == ratio {
			if c.Jobs--; c.Jobs == 0 {
				a.Classes = slices.Delete(a.Classes, i, i+1)
			}
			return
		}
	}
}

// updateBooks updates the books: the time that has passed, new jobs and jobs that are gone. It returns the running and
// waiting jobs.
func (p *Policy) updateBooks(v *policy.View) []*policy.Job {
	b := &p.books
	seconds := 0.0
	if !b.Round.IsZero() {
		seconds = max(0, v.Now.Sub(b.Round).Seconds())
	}
	b.Round = v.Now
	b.entered++
	for _, a := range b.Tenants {
		a.advance(seconds, p.ByDemand, p.horizon)
		a.Held, a.Demand, a.Weights, a.Active = 0, 0, 0, 0
	}
	b.Waited = false
	var jobs []*policy.Job
	active := 0
	for _, app := range v.Apps {
		for _, j := range app.Jobs {
			asks := j.Running() || j.Waiting()
			if asks || j.Consolidating && !app.Paused {
				b.enterJob(v, j)
				active++
			}
			if asks {
				jobs = append(jobs, j)
			}
		}
	}
	if len(b.Jobs) > active {
		b.forgetGone()
	}
	p.updateQuotas(v)
	return jobs
}

// enterJob enters an active job.
func (b *books) enterJob(v *policy.View, j *policy.Job) {
	b.Waited = b.Waited || j.Waiting()
	a := b.Tenants[j.App.Tenant]
	if a == nil {
		a = &account{}
		b.Tenants[j.App.Tenant] = a
	}
	demand := float64(max(1, j.Demand.Max))
	r := b.Jobs[j.Name()]
	if r == nil {
		weight := policy.WeightOrOne(j.Weight) * policy.WeightOrOne(j.App.Weight)
		c := a.class(demand / weight)
		c.Jobs++
		r = &record{Tenant: j.App.Tenant, Ratio: c.Ratio, Weight: weight, Before: c.Integral, Had: v.Attained(j)}
		b.Jobs[j.Name()] = r
	}
	r.seen = b.entered
	a.Active++
	a.Demand += demand
	a.Weights += r.Weight
}

// forgetGone drops the records of jobs that are no longer active.
func (b *books) forgetGone() {
	for name, r := range b.Jobs {
		if r.seen != b.entered {
			b.Tenants[r.Tenant].removeJob(r.Ratio)
			delete(b.Jobs, name)
		}
	}
}

// updateQuotas computes each tenant's part of the cluster.
func (p *Policy) updateQuotas(v *policy.View) {
	devices := 0
	for i := range v.Nodes {
		devices += len(v.Nodes[i].Devices)
	}
	all := make([]*accounts.Account, 0, len(p.books.Tenants)+len(v.Tenants))
	for _, name := range slices.Sorted(maps.Keys(p.books.Tenants)) {
		a := p.books.Tenants[name]
		a.Weight = v.TenantWeight(name, p.Weights)
		all = append(all, &a.Account)
	}
	for i := range v.Tenants { // they lend their quotas
		if name := v.Tenants[i].Name; p.books.Tenants[name] == nil {
			all = append(all, &accounts.Account{Weight: v.TenantWeight(name, p.Weights)})
		}
	}
	accounts.Quotas(devices, slices.Values(all))
}

// recordHoldings records what tenants hold from now on. Devices of jobs that must leave count until they are released.
func (b *books) recordHoldings(v *policy.View, plan policy.Plan) {
	for _, app := range v.Apps {
		for _, j := range app.Jobs {
			if n := j.Held().Size(); n > 0 {
				b.Tenants[app.Tenant].Held += float64(n)
			}
		}
	}
	for i := range plan.Grants {
		g := &plan.Grants[i]
		b.Tenants[g.Job.App.Tenant].Held += float64(g.Gang.Size())
	}
}

// rho returns a job's device time over its fair share since it became active. One second of its share is added to the
// fair share so that rho is always finite.
func (b *books) rho(v *policy.View, j *policy.Job) float64 {
	r := b.Jobs[j.Name()]
	a := b.Tenants[r.Tenant]
	fair := r.Weight * (a.class(r.Ratio).Integral - r.Before + min(r.Ratio, a.share()))
	if fair <= 0 {
		return 0
	}
	return (v.Attained(j) - r.Had) / fair
}
