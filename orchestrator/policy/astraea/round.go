package astraea

import (
	"cmp"
	"container/heap"
	"fmt"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/policy"
)

// round is the state of a round: algorithm 1.
type round struct {
	p       *Policy
	v       *policy.View
	plan    *policy.Planner
	tenants tenants
	none    policy.Unplaceable
	// empty is the capacity without any jobs; nil until a job finds no place.
	empty *cluster.Capacity
	// next is when some term ends.
	next time.Time
}

// round decides which jobs get free devices and those whose terms have ended. calm means that no job waited in the last
// round: then terms that have ended since were renewed when they ended.
func (p *Policy) round(v *policy.View, jobs []*policy.Job, calm bool) policy.Plan {
	r := &round{p: p, v: v, plan: policy.Refill(v)}
	end := p.newTermEnd(v.Now)
	r.next = end
	r.collectTurns(jobs, calm)
	r.plan.Until(end)
	heap.Init(&r.tenants)
	for len(r.tenants) > 0 && r.plan.Free().FreeDevices() > 0 {
		r.serveTenant()
	}
	plan := r.plan.Plan("two phases: the tenant with the least rho, and of its jobs the one with the least",
		"its term ended, and others have had less of their share")
	plan.Next = later(r.next, v.Now.Add(max(p.interval, time.Second)))
	return plan
}

// newTermEnd returns the end of the terms that begin now.
func (p *Policy) newTermEnd(now time.Time) time.Time {
	if !p.Together {
		return now.Add(p.term)
	}
	if !now.Before(p.books.TermEnd) {
		p.books.TermEnd = now.Add(p.term)
	}
	return p.books.TermEnd
}

// collectTurns collects the jobs that ask for a term: waiting jobs and running ones whose term has ended, and reclaims
// the devices of the latter.
func (r *round) collectTurns(jobs []*policy.Job, calm bool) {
	asking := map[string]*tenant{}
	for _, j := range jobs {
		switch {
		case j.Waiting():
		case !j.Running() || j.Ending:
			continue
		case j.TermEnd.After(r.v.Now):
			r.next = earlier(r.next, j.TermEnd)
			continue
		case calm && !j.TermEnd.IsZero() && !r.p.Together:
			until := r.v.Now.Add(r.p.term - r.v.Now.Sub(j.TermEnd)%r.p.term)
			r.next = earlier(r.next, until)
			r.plan.Until(until)
			if r.plan.Renew(j, "nobody waited at its term's end") {
				continue
			}
			r.plan.Reclaim(j)
		default:
			r.plan.Reclaim(j)
		}
		t := asking[j.App.Tenant]
		if t == nil {
			t = &tenant{name: j.App.Tenant, account: r.p.books.Tenants[j.App.Tenant], order: len(asking)}
			asking[j.App.Tenant] = t
			r.tenants = append(r.tenants, t)
		}
		t.jobs = append(t.jobs, turn{job: j, rho: r.p.books.rho(r.v, j), fresh: r.p.NewFirst && j.Leases == 0 && !j.Running(), order: len(t.jobs)})
	}
	for _, t := range r.tenants {
		heap.Init(&t.jobs)
	}
}

// serveTenant is one pass of algorithm 1: the tenant with the least rho, and its first job.
func (r *round) serveTenant() {
	t := r.tenants[0]
	if len(t.jobs) == 0 {
		heap.Pop(&r.tenants)
		return
	}
	turn := t.jobs[0]
	heap.Pop(&t.jobs)
	n := r.place(t, turn)
	if n == 0 {
		if r.p.SkipTenant && r.fitsEmptyCluster(turn.job) {
			heap.Pop(&r.tenants)
		}
		return
	}
	t.charged += float64(n) * r.p.term.Seconds()
	heap.Fix(&r.tenants, 0)
}

// place renews a job's lease, or finds a place for it. It returns the number of devices that the job then has, or 0 if
// it found no place.
func (r *round) place(t *tenant, turn turn) int {
	j := turn.job
	if j.Running() && r.plan.Renew(j, turn.reason(t)) {
		return j.Held().Size()
	}
	if r.none.Covers(j.Demand) {
		return 0
	}
	if g, ok := r.plan.Free().Best(j.Demand); ok {
		if g = r.plan.PreferFreeNow(j, g); r.plan.PlaceOn(j, g, turn.reason(t)) {
			return g.Size()
		}
	}
	r.none.Add(j.Demand)
	return 0
}

// reason explains a job's turn.
func (u turn) reason(t *tenant) string {
	if u.fresh {
		return fmt.Sprintf("tenant %s has had %.3g of its share, and the job is new", t.name, t.rho())
	}
	return fmt.Sprintf("tenant %s has had %.3g of its share, and the job %.3g", t.name, t.rho(), u.rho)
}

// fitsEmptyCluster reports whether a job would find a place on an empty cluster. If not, it does not hold back other
// jobs.
func (r *round) fitsEmptyCluster(j *policy.Job) bool {
	if j.Demand.Quota == 0 { // faster than an empty cluster
		return cluster.Impossible(r.v.Nodes, j.Demand) == ""
	}
	if r.empty == nil {
		r.empty = r.v.Empty()
	}
	_, ok := r.empty.Best(j.Demand)
	return ok
}

// tenant is a tenant with jobs that ask.
type tenant struct {
	*account
	name string
	// charged is the device-seconds of the terms given in this round.
	charged float64
	jobs    turns
	order   int
}

// rho returns the tenant's rho with the terms of this round included.
func (t *tenant) rho() float64 { return t.Rho(t.charged) }

// tenants is a heap with the least rho first.
type tenants []*tenant

func (h tenants) Len() int      { return len(h) }
func (h tenants) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h tenants) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(h[i].rho(), h[j].rho()), h[i].order-h[j].order) < 0
}
func (h *tenants) Push(x any) { *h = append(*h, x.(*tenant)) } //nolint:forcetypeassert // heap.Interface is untyped
func (h *tenants) Pop() any {
	last := len(*h) - 1
	t := (*h)[last]
	*h = (*h)[:last]
	return t
}

// turn is a job that asks.
type turn struct {
	job   *policy.Job
	rho   float64
	fresh bool
	order int
}

// turns is a heap of a tenant's jobs: algorithm 2, with new jobs first.
type turns []turn

func (h turns) Len() int      { return len(h) }
func (h turns) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h turns) Less(i, j int) bool {
	if h[i].fresh != h[j].fresh {
		return h[i].fresh
	}
	return cmp.Or(cmp.Compare(h[i].rho, h[j].rho), h[i].order-h[j].order) < 0
}
func (h *turns) Push(x any) { *h = append(*h, x.(turn)) } //nolint:forcetypeassert // heap.Interface is untyped
func (h *turns) Pop() any {
	last := len(*h) - 1
	t := (*h)[last]
	*h = (*h)[:last]
	return t
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
