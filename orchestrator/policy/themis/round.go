package themis

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/agent"
	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// round is one decision in progress. The view's free capacity is planned on: what is granted or kept for somebody is
// taken.
type round struct {
	p    *Policy
	v    *policy.View
	term time.Time
	// expired jobs hold leases that are up, and lost are those of them that have got nothing yet. Their devices are in
	// the plan's free capacity once released.
	expired  []*policy.Job
	lost     map[*policy.Job]bool
	released bool
	// kept is the gangs that are promised to jobs.
	kept map[*policy.Job]cluster.Gang
	// claims is the jobs of an app that want a gang.
	claims  map[*policy.App]*claim
	bidders []*bidder
	all     []agent.Stock
	record  *outbidv1.Auction
	planner *policy.Planner
}

// claim is the jobs of one app that could take a gang, those with most left to do first, and what they got.
type claim struct {
	app  *policy.App
	jobs []*policy.Job
	// devices that the app has when all is done, and what it got in the auction and of the leftovers.
	devices                 int
	won, leftover, extended []*outbidv1.Lot
}

func newRound(p *Policy, v *policy.View) *round {
	p.forget(v)
	r := &round{p: p, v: v, term: p.termEnd(v.Now), claims: map[*policy.App]*claim{}, planner: policy.Extend(v)}
	r.planner.Until(r.term)
	return r
}

// expire finds the leases that are up.
func (r *round) expire() {
	ends := &r.p.Ends
	if !ends.IsZero() && r.v.Now.Before(*ends) {
		return
	}
	*ends = time.Time{}
	for _, a := range r.v.Apps {
		for _, j := range a.Jobs {
			if !j.Running() || j.Ending || a.Paused || r.draining(j.Gang) {
				continue
			}
			if j.TermEnd.After(r.v.Now) {
				r.ends(j.TermEnd)
				continue
			}
			if r.lost == nil {
				r.lost = map[*policy.Job]bool{}
			}
			r.lost[j] = true
			r.expired = append(r.expired, j)
		}
	}
}

// ends takes a term's end into account for the next round.
func (r *round) ends(t time.Time) {
	if e := r.p.Ends; e.IsZero() || t.Before(e) {
		r.p.Ends = t
	}
}

func (r *round) draining(g cluster.Gang) bool {
	return slices.ContainsFunc(g, func(p cluster.Place) bool { return r.v.Nodes[p.Node].Draining })
}

// wants says whether something is on offer and somebody wants something.
func (r *round) wants() bool {
	if len(r.expired) > 0 {
		return true
	}
	if r.v.Free.FreeDevices() == 0 {
		return false
	}
	for _, a := range r.v.Apps {
		if r.wanting(a) {
			return true
		}
	}
	return false
}

// wanting says whether some job of an app could take a gang.
func (r *round) wanting(a *policy.App) bool {
	return !a.Paused && slices.ContainsFunc(a.Jobs, r.open)
}

// open says whether a job could take a gang.
func (r *round) open(j *policy.Job) bool {
	if j.Running() {
		return r.lost[j]
	}
	_, promised := r.kept[j]
	return !promised
}

// claim lists an app's jobs that could take a gang.
func (r *round) claim(a *policy.App) *claim {
	c := r.claims[a]
	if c != nil {
		return c
	}
	c = &claim{app: a}
	r.claims[a] = c
	for _, j := range a.Jobs {
		g, promised := r.kept[j]
		switch {
		case promised:
			c.devices += g.Size()
		case j.Running() && !r.lost[j] && !j.Ending:
			c.devices += j.Gang.Size()
		case !a.Paused && r.open(j):
			c.jobs = append(c.jobs, j)
		}
	}
	left := make(map[*policy.Job]float64, len(c.jobs))
	for _, j := range c.jobs {
		left[j] = r.v.StepsLeft(j)
	}
	slices.SortStableFunc(c.jobs, func(x, y *policy.Job) int { return cmp.Compare(left[y], left[x]) })
	return c
}

func (c *claim) served(j *policy.Job) {
	c.jobs = slices.DeleteFunc(c.jobs, func(o *policy.Job) bool { return o == j })
}

// release puts the devices on leases that are up, but for those renewed, among the free ones.
func (r *round) release() {
	if r.released {
		return
	}
	r.released = true
	for _, j := range r.expired {
		if r.lost[j] {
			r.planner.Reclaim(j)
		}
	}
}

// renew lets a job go on where it is, if nobody was given its devices.
func (r *round) renew(j *policy.Job, reason string) bool {
	if !r.lost[j] || !r.planner.Renew(j, reason) {
		return false
	}
	delete(r.lost, j)
	return true
}

// give grants a gang, now if it is free and the job waits, otherwise as soon as that is so. The gang must be free in the
// plan.
func (r *round) give(j *policy.Job, g cluster.Gang, rho float64, reason string) {
	if !r.planner.PlaceOn(j, g, reason) || r.planner.Granted(j) {
		return
	}
	made := promise{Job: j.Name(), Rho: rho, Made: r.v.Now}
	for _, p := range g {
		made.Nodes = append(made.Nodes, promised{r.v.Nodes[p.Node].Name, slices.Clone(p.Devices)})
	}
	r.p.Promises = append(r.p.Promises, made)
}

// place finds a gang of n devices for a job: on what is free now, or else on what is about to be.
func (r *round) place(d cluster.Demand, n int, kind string) (cluster.Gang, bool) {
	d.Min, d.Max = n, n
	if g, ok := r.v.Free.Place(d, n, kind); ok || r.released || len(r.lost) == 0 {
		return g, ok
	}
	r.release()
	return r.v.Free.Place(d, n, kind)
}

// finish turns what was decided into a plan.
func (r *round) finish() policy.Plan {
	for _, j := range r.expired {
		if r.lost[j] && !r.moving(j) {
			r.renew(j, "nobody else wants its devices")
		}
	}
	for _, j := range r.expired {
		if r.lost[j] {
			r.planner.Reclaim(j)
		}
	}
	plan := r.planner.Plan("", "its lease is up, and its devices went to others in the auction")
	if len(plan.Grants)+len(plan.Renews)+len(r.p.Promises) > 0 {
		r.ends(r.term)
	}
	changes := len(plan.Grants) + len(plan.Renews) + len(plan.Revokes)
	if changes > 0 {
		asked := 0
		for _, b := range r.bidders {
			if b.asked {
				asked++
			}
		}
		plan.Reason = fmt.Sprintf("auction among %d of %d apps", asked, len(r.bidders))
	}
	r.close(&plan)
	if plan.Next = r.p.Ends; !plan.Next.After(r.v.Now) {
		plan.Next = time.Time{}
	}
	return plan
}

// moving says whether a job that holds devices was promised others.
func (r *round) moving(j *policy.Job) bool {
	name := j.Name()
	return slices.ContainsFunc(r.p.Promises, func(p promise) bool { return p.Job == name })
}
