package themis

import (
	"cmp"
	"slices"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/policy"
)

// faster is how much faster a job must be with more devices than with those that it has, to be stopped for them.
const faster = 1.1

// idle is since when so many devices are free that nobody waits for.
type idle struct {
	Since   time.Time
	Devices int
}

// more is the reason of a job that leaves its devices for more.
const more = "goes on with more devices, which nobody waits for"

// GrowsJobs implements policy.Growing.
func (p *Policy) GrowsJobs() bool { return p.set.grow > 0 }

// grow stops jobs of one app, on leases that are not up, that would train faster with devices which have been free for so long that
// nobody seems to want them, and reserves these for them. Of several apps it is the one that holds least. No other app can lose by it: nobody
// waits, and whoever comes later has what leases leave, as ever. It says whether jobs were stopped, and when to look again.
func (p *Policy) grow(v *policy.View, plan *policy.Planner, expired []*policy.Job) (grown bool, next time.Time) {
	if p.set.grow == 0 {
		return false, next
	}
	if p.Idle = p.Idle.at(v); p.Idle.Devices == 0 {
		return false, next
	}
	var jobs []*policy.Job
	least := 0
	for _, a := range v.Apps {
		due, later, held := p.growable(v, a)
		next = sooner(next, later)
		if len(due) > 0 && (jobs == nil || held < least) {
			jobs, least = due, held
		}
	}
	if len(jobs) > 0 && (len(expired) > 0 || len(p.Reservations) > 0) {
		return false, sooner(next, v.Now.Add(p.set.grow)) // when what is decided already has come about
	}
	for i, n := range level(v, jobs, p.Idle.Devices) {
		for ; n > jobs[i].Gang().Size() && !enlarge(v, plan, jobs[i], n); n-- {
		}
		grown = grown || n > jobs[i].Gang().Size()
	}
	return grown, next
}

// level says how many devices each job is to have if so many more are divided: one after another to who has least then, and of
// those to who has most left to do. It sorts the jobs.
func level(v *policy.View, jobs []*policy.Job, devices int) []int {
	slices.SortStableFunc(jobs, func(x, y *policy.Job) int { return cmp.Compare(v.StepsLeft(y), v.StepsLeft(x)) })
	sizes := make([]int, len(jobs))
	for i, j := range jobs {
		sizes[i] = j.Gang().Size()
	}
	for ; devices > 0; devices-- {
		to := -1
		for i, n := range sizes {
			if n < jobs[i].Demand.Max && (to < 0 || n < sizes[to]) {
				to = i
			}
		}
		if to < 0 {
			break
		}
		sizes[to]++
	}
	return sizes
}

// enlarge stops a job to go on with n devices, if there is a place with so many where it is faster.
func enlarge(v *policy.View, plan *policy.Planner, j *policy.Job, n int) bool {
	now, d := v.Rate(j, j.Gang()), j.Demand
	d.Min, d.Max = n, n
	try := plan.Statement()
	plan.Evict(j, more)
	if g, ok := plan.Free().Place(d, n, ""); ok && v.Rate(j, g) > faster*now && plan.PlaceOn(j, g, more) {
		try.Commit()
		return true
	}
	try.Discard()
	return false
}

// at is what is idle in a view: none if somebody waits for what is free.
func (i idle) at(v *policy.View) idle {
	free := v.Free.FreeDevices()
	if free == 0 || waited(v) {
		return idle{}
	}
	if free == i.Devices {
		return i
	}
	return idle{v.Now, free}
}

// waited says whether somebody waits who would take a device of a type that is free, now or with others.
func waited(v *policy.View) bool {
	for j := range v.Line() {
		if slices.ContainsFunc(v.Free.Types(), func(kind string) bool { return v.Free.FreeOf(kind) > 0 && j.Demand.Accepts(kind) }) {
			return true
		}
	}
	return false
}

// growable lists the jobs of an app that may have more devices now, says when there may be another, and how much it holds.
func (p *Policy) growable(v *policy.View, a *policy.App) (due []*policy.Job, next time.Time, held int) {
	for _, j := range a.Jobs {
		held += j.Held().Size()
		if a.Paused || a.Forks > 1 || !j.Running() || j.Ending || !j.TermEnd.After(v.Now) || !gains(v, j) {
			continue
		}
		since := p.Idle.Since
		if j.Granted.After(since) {
			since = j.Granted
		}
		if at := since.Add(p.set.grow); at.After(v.Now) {
			next = sooner(next, at)
		} else {
			due = append(due, j)
		}
	}
	return due, next, held
}

// gains says whether there is room for a job to have more devices than it holds, on which it would be faster.
func gains(v *policy.View, j *policy.Job) bool {
	g := j.Gang()
	if g.Size() >= j.Demand.Max || v.Draining(g) {
		return false
	}
	try := v.Statement()
	defer try.Discard()
	v.Free.Release(g, j.Demand)
	now := v.Rate(j, g)
	for n := g.Size() + 1; n <= j.Demand.Max; n++ {
		d := j.Demand
		d.Min, d.Max = n, n
		g, ok := v.Free.Place(d, n, "")
		if !ok {
			return false
		}
		if v.Rate(j, g) > faster*now {
			return true
		}
	}
	return false
}
