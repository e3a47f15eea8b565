package astraea

import (
	"maps"
	"slices"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/astraea/accounts"
)

// books are the integrals that fairness is judged by. They are brought up to date at each round, so what began and ended
// between two rounds is not in a tenant's; a job's own device-time is exact, as the view has it.
type books struct {
	// Round is when the last round was, and Waited says whether somebody waited then.
	Round  time.Time
	Waited bool
	// TermEnd is when the terms of all end, where they end together.
	TermEnd time.Time
	Tenants map[string]*account
	Jobs    map[policy.JobName]*record
	// entered counts rounds, for the records of those who are gone.
	entered uint64
}

func newBooks() books {
	return books{Tenants: map[string]*account{}, Jobs: map[policy.JobName]*record{}}
}

// account is a tenant's, with its jobs by class.
type account struct {
	accounts.Account

	Classes []class
}

// class is a tenant's active jobs with the same demand per weight. What is fair to a job of weight w is the integral of
// min(demand, w * s), with the same s for all of the tenant's jobs; that is w times the integral of min(ratio, s).
type class struct {
	Ratio, Integral float64
	Jobs            int
}

// record is an active job's: one that holds devices or asks for some. A trial that was paused and asks again begins anew.
type record struct {
	Tenant        string
	Ratio, Weight float64
	// Before is its class's integral, and Had its device-seconds, when it became active.
	Before, Had float64
	// seen is the count of rounds at the last of which it was there.
	seen uint64
}

// share is s: what is fair to a job of weight 1, in devices.
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

// advance adds what passed since the last round.
func (a *account) advance(seconds float64, byDemand bool, horizon float64) {
	a.Advance(seconds, byDemand, horizon)
	share := a.share()
	for i := range a.Classes {
		a.Classes[i].Integral += min(a.Classes[i].Ratio, share) * seconds
	}
}

// leave takes a job that is no longer active off its class.
func (a *account) leave(ratio float64) {
	for i := range a.Classes {
		if c := &a.Classes[i]; c.Ratio == ratio {
			if c.Jobs--; c.Jobs == 0 {
				a.Classes = slices.Delete(a.Classes, i, i+1)
			}
			return
		}
	}
}

// enter brings the books up to now: what passed, who came and who went. It returns the jobs that hold devices or
// wait for some.
func (p *Policy) enter(v *policy.View) []*policy.Job {
	b := &p.books
	seconds := 0.0
	if !b.Round.IsZero() {
		seconds = max(0, v.Now.Sub(b.Round).Seconds())
	}
	b.Round = v.Now
	b.entered++
	for _, a := range b.Tenants {
		a.advance(seconds, p.byDemand, p.horizon)
		a.Held, a.Demand, a.Weights, a.Active = 0, 0, 0, 0
	}
	b.Waited = false
	var jobs []*policy.Job
	active := 0
	for _, app := range v.Apps {
		for _, j := range app.Jobs {
			asks := j.Running() || j.Waiting()
			if asks || j.Consolidating && !app.Paused {
				b.count(v, j)
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
	p.requota(v)
	return jobs
}

// count enters an active job.
func (b *books) count(v *policy.View, j *policy.Job) {
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
			b.Tenants[r.Tenant].leave(r.Ratio)
			delete(b.Jobs, name)
		}
	}
}

// requota works out each tenant's part of the cluster.
func (p *Policy) requota(v *policy.View) {
	devices := 0
	for i := range v.Nodes {
		devices += len(v.Nodes[i].Devices)
	}
	all := make([]*accounts.Account, 0, len(p.books.Tenants)+len(v.Tenants))
	for _, name := range slices.Sorted(maps.Keys(p.books.Tenants)) {
		a := p.books.Tenants[name]
		a.Weight = v.TenantWeight(name, p.weights)
		all = append(all, &a.Account)
	}
	for i := range v.Tenants { // what they were promised they lend
		if name := v.Tenants[i].Name; p.books.Tenants[name] == nil {
			all = append(all, &accounts.Account{Weight: v.TenantWeight(name, p.weights)})
		}
	}
	accounts.Quotas(devices, slices.Values(all))
}

// hold notes what tenants hold from now on. Devices of jobs that are to leave count until they have left.
func (b *books) hold(v *policy.View, plan policy.Plan) {
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

// rho is a job's: what it has had over what was fair to it, since it became active. A second of its share counts in what
// was fair, so that it is finite at once.
func (b *books) rho(v *policy.View, j *policy.Job) float64 {
	r := b.Jobs[j.Name()]
	a := b.Tenants[r.Tenant]
	fair := r.Weight * (a.class(r.Ratio).Integral - r.Before + min(r.Ratio, a.share()))
	if fair <= 0 {
		return 0
	}
	return (v.Attained(j) - r.Had) / fair
}
