// Package gandivafair is the scheduler of Chaudhary et al., "Balancing Efficiency and Fairness in Heterogeneous GPU
// Clusters for Deep Learning" (EuroSys 2020): tickets, and gang-aware stride scheduling.
//
// Every user (a tenant, or with per=app a sweep) holds tickets. A user's pass advances by the device-seconds of its
// jobs over its tickets; the user with the lowest pass comes first. A user's tickets are divided among its jobs in
// proportion to their gangs, so a job's pass advances by the seconds that it ran over its weight, and within a user the
// job with the lowest pass comes first. A user that is new or returns starts at the lowest existing pass, so no user
// accumulates credit. At the end of each time slice all devices are reassigned; a gang that does not fit is skipped for
// the slice, keeps its pass, and so comes first later. No device idles that some job can use.
//
// Simplifications: there is one stride scheduler for the cluster instead of one per server and a central one that
// balances them. Jobs that are chosen again keep their devices, and others move only for chosen jobs that fit nowhere.
// The slice is 6 minutes instead of 1 because a stop costs a checkpoint here, not a suspension. The trading of fast
// devices for slow ones between users is left out, as in ASTRAEA's evaluation.
package gandivafair

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/policy"
)

// Policy is gang-aware stride scheduling.
type Policy struct {
	slice   time.Duration
	perApp  bool
	tickets map[string]float64
	s       memory
}

// memory is the policy's state.
type memory struct {
	// Last is the time of the last decision, and Slice when the present slice began.
	Last, Slice time.Time
	// Least is the lowest pass of any user that had jobs; it never falls.
	Least float64
	Users map[string]user
	// Started is a job's pass when it was first seen.
	Started map[policy.JobName]float64
}

// user is the state of a user, who holds tickets.
type user struct {
	Pass float64
	// Active users have jobs; Held is how many devices they held after the last decision.
	Active bool
	Held   int
}

// New makes the policy from its options.
func New(o *policy.Options) policy.Policy {
	p := &Policy{
		slice: o.Duration("slice", 6*time.Minute, "length of a time slice; the paper has 1m"),
		perApp: o.Text("per", "tenant", "what holds tickets: tenant, each tenant; or app, each sweep by its weight",
			"tenant", "app") == "app",
		tickets: o.Weights("tickets", "tickets of tenants, such as vision=2,speech=1; others hold their tenant's weight"),
	}
	p.reset()
	return p
}

func (p *Policy) reset() {
	p.s = memory{Users: map[string]user{}, Started: map[policy.JobName]float64{}}
}

// Name implements policy.Policy.
func (p *Policy) Name() string { return "gandiva-fair" }

// Snapshot implements policy.Policy.
func (p *Policy) Snapshot() ([]byte, error) { return json.Marshal(p.s) }

// Restore implements policy.Policy.
func (p *Policy) Restore(b []byte) error {
	p.reset()
	if err := json.Unmarshal(b, &p.s); err != nil {
		return fmt.Errorf("gandiva-fair: snapshot: %w", err)
	}
	return nil
}

// Decide implements policy.Policy.
func (p *Policy) Decide(v *policy.View) policy.Plan {
	p.charge(v)
	waiting := anyWaits(v)
	ended := !v.Now.Before(p.s.Slice.Add(p.slice))
	plan := policy.Plan{Reason: "nothing to give within the time slice"}
	switch {
	case !waiting || !ended && v.Free.FreeDevices() == 0:
	case ended:
		p.s.Slice = v.Now
		inventory := v.Inventory()
		all := policy.Preempt(v)
		all.Rank(p.order(v), func(j *policy.Job) int { return inventory.Wants(j.Demand) }, "the lowest pass of those that fit")
		plan = all.Plan("a new time slice", "the time slice ended; others have a lower pass")
	default:
		fill := policy.Refill(v)
		fill.Fill(p.order(v), "free within the slice, and the lowest pass of those that fit")
		plan = fill.Plan("within the time slice", "")
	}
	if waiting {
		plan.Next = p.s.Slice.Add(p.slice)
	}
	p.recordHoldings(v, plan)
	return plan
}

func (p *Policy) userOf(a *policy.App) string {
	if p.perApp {
		return a.ID
	}
	return a.Tenant
}

// ticketsOf returns the tickets of a sweep's user.
func (p *Policy) ticketsOf(v *policy.View, a *policy.App) float64 {
	if p.perApp {
		return policy.WeightOrOne(a.Weight)
	}
	return v.TenantWeight(a.Tenant, p.tickets)
}

// charge advances the passes of users by their device-seconds since the last decision, and adds new users.
func (p *Policy) charge(v *policy.View) {
	seconds := max(0, v.Now.Sub(p.s.Last).Seconds())
	p.s.Last = v.Now
	tickets := map[string]float64{}
	for _, a := range v.Apps {
		if len(a.Jobs) > 0 && !a.Paused {
			tickets[p.userOf(a)] = p.ticketsOf(v, a)
		}
	}
	least, found := 0.0, false
	for name, u := range p.s.Users {
		if held, ok := tickets[name]; ok {
			u.Pass += float64(u.Held) * seconds / held
			if u.Active && (!found || u.Pass < least) {
				least, found = u.Pass, true
			}
		}
		p.s.Users[name] = u
	}
	if found {
		p.s.Least = max(p.s.Least, least)
	}
	for name := range tickets {
		u := p.s.Users[name]
		if !u.Active {
			u = user{Pass: max(u.Pass, p.s.Least), Active: true}
		}
		p.s.Users[name] = u
	}
	for name, u := range p.s.Users {
		if _, ok := tickets[name]; ok {
			continue
		}
		if u.Pass <= p.s.Least {
			delete(p.s.Users, name) // would return at the lowest pass anyway
			continue
		}
		p.s.Users[name] = user{Pass: u.Pass}
	}
}

// recordHoldings records how many devices each user holds from now on. Devices of jobs that must leave count until they
// are released.
func (p *Policy) recordHoldings(v *policy.View, plan policy.Plan) {
	held := map[string]int{}
	for _, a := range v.Apps {
		n := 0
		for _, j := range a.Jobs {
			n += j.Gang().Size()
		}
		held[p.userOf(a)] += n
	}
	for i := range plan.Grants {
		held[p.userOf(plan.Grants[i].Job.App)] += plan.Grants[i].Gang.Size()
	}
	for name, u := range p.s.Users {
		u.Held = held[name]
		p.s.Users[name] = u
	}
}

// anyWaits reports whether some job waits for devices.
func anyWaits(v *policy.View) bool {
	return slices.ContainsFunc(v.Apps, func(a *policy.App) bool { return slices.ContainsFunc(a.Jobs, (*policy.Job).Waiting) })
}

// turn is a job's place in line: its index among the view's jobs, and its user's index in order of appearance. It
// contains no pointers, so that sorting many is cheap.
type turn struct {
	pass     float64
	at, user int32
}

func sortTurns(turns []turn) {
	slices.SortFunc(turns, func(a, b turn) int {
		if c := cmp.Compare(a.pass, b.pass); c != 0 {
			return c
		}
		return cmp.Compare(a.at, b.at)
	})
}

// order lists the jobs in the stride scheduler's order. The key of a user's k-th job is the user's pass after the k-1
// before it have had a slice, so one sort gives the same result as repeatedly taking the lowest pass.
func (p *Policy) order(v *policy.View) []*policy.Job {
	all := v.Jobs()
	turns, passes := p.turns(v, all)
	sortTurns(turns)
	for i := range turns {
		t := &turns[i]
		j := all[t.at]
		t.pass = passes[t.user]
		n := max(j.Gang().Size(), j.Demand.Min)
		passes[t.user] += float64(n) * p.slice.Seconds() / p.ticketsOf(v, j.App)
	}
	sortTurns(turns)
	jobs := make([]*policy.Job, len(turns))
	for i := range turns {
		jobs[i] = all[turns[i].at]
	}
	return jobs
}

// turns returns the jobs with their passes, and the passes of users. New jobs get their user's lowest.
func (p *Policy) turns(v *policy.View, jobs []*policy.Job) (turns []turn, passes []float64) {
	turns = make([]turn, len(jobs))
	users := map[string]int32{}
	var least []float64 // by user, among known jobs
	var fresh []int
	for i, j := range jobs {
		name := p.userOf(j.App)
		user, met := users[name]
		if !met {
			user = int32(len(users))
			users[name] = user
			passes, least = append(passes, p.s.Users[name].Pass), append(least, math.Inf(1))
		}
		turns[i] = turn{at: int32(i), user: user}
		start, known := p.s.Started[j.Name()]
		if !known {
			fresh = append(fresh, i)
			continue
		}
		turns[i].pass = start + timeRun(v, j)
		least[user] = min(least[user], turns[i].pass)
	}
	for _, i := range fresh {
		if t := &turns[i]; !math.IsInf(least[t.user], 1) {
			t.pass = least[t.user]
		}
		p.s.Started[jobs[i].Name()] = turns[i].pass - timeRun(v, jobs[i])
	}
	if len(p.s.Started) > 2*len(jobs)+64 {
		p.forgetGone(jobs)
	}
	return turns, passes
}

// forgetGone drops the state of jobs that are gone.
func (p *Policy) forgetGone(jobs []*policy.Job) {
	old := p.s.Started
	p.s.Started = make(map[policy.JobName]float64, len(jobs))
	for _, j := range jobs {
		p.s.Started[j.Name()] = old[j.Name()]
	}
}

// timeRun returns the seconds that a job has run so far, over its weight.
func timeRun(v *policy.View, j *policy.Job) float64 {
	size := max(1, j.Demand.Min)
	if j.Running() {
		size = j.Gang().Size()
	}
	return v.Attained(j) / float64(size) / policy.WeightOrOne(j.Weight)
}
