package themis

import (
	"cmp"
	"slices"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/policy"
)

// growSpeedup is how many times faster a trial must be with more devices for it to be stopped for them.
const growSpeedup = 1.1

// idle records how many devices are free and not wanted by a waiting trial, and since when.
type idle struct {
	Since   time.Time
	Devices int
}

// growReason is the reason given when a trial leaves its devices for more.
const growReason = "goes on with more devices, which nobody waits for"

// GrowsJobs implements policy.Growing.
func (p *Policy) GrowsJobs() bool { return p.set.grow > 0 }

// grow stops trials of one sweep, before their leases expire, that would train faster with devices which have been free
// for long enough that no trial seems to want them, and reserves the devices for them. If several sweeps qualify it
// picks the one that holds the least. No other sweep loses: none is waiting, and later ones get what expiring leases
// leave, as always. grow reports whether trials were stopped, and when to check again.
func (p *Policy) grow(v *policy.View, plan *policy.Planner, expired []*policy.Job) (grown bool, next time.Time) {
	if p.set.grow == 0 {
		return false, next
	}
	if p.Idle = p.Idle.update(v); p.Idle.Devices == 0 {
		return false, next
	}
	var jobs []*policy.Job
	least := 0
	for _, a := range v.Apps {
		due, later, held := p.growable(v, a)
		next = earlier(next, later)
		if len(due) > 0 && (jobs == nil || held < least) {
			jobs, least = due, held
		}
	}
	if len(jobs) > 0 && (len(expired) > 0 || len(p.Reservations) > 0) {
		return false, earlier(next, v.Now.Add(p.set.grow)) // once earlier decisions have taken effect
	}
	for i, n := range levelSizes(v, jobs, p.Idle.Devices) {
		for ; n > jobs[i].Gang().Size() && !enlarge(v, plan, jobs[i], n); n-- {
		}
		grown = grown || n > jobs[i].Gang().Size()
	}
	return grown, next
}

// levelSizes distributes more devices over jobs and returns the size that each should have: each device goes to the job
// with the fewest, and among these to the one with the most work left. It sorts jobs.
func levelSizes(v *policy.View, jobs []*policy.Job, devices int) []int {
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

// enlarge stops a trial so that it can continue with n devices, if there is a place with n where it is faster.
func enlarge(v *policy.View, plan *policy.Planner, j *policy.Job, n int) bool {
	now, d := v.Rate(j, j.Gang()), j.Demand
	d.Min, d.Max = n, n
	try := plan.Statement()
	plan.Evict(j, growReason)
	if g, ok := plan.Free().Place(d, n, ""); ok && v.Rate(j, g) > growSpeedup*now && plan.PlaceOn(j, g, growReason) {
		try.Commit()
		return true
	}
	try.Discard()
	return false
}

// update returns the idle devices in a view: none if a waiting trial could use what is free.
func (i idle) update(v *policy.View) idle {
	free := v.Free.FreeDevices()
	if free == 0 || isWanted(v) {
		return idle{}
	}
	if free == i.Devices {
		return i
	}
	return idle{v.Now, free}
}

// isWanted reports whether a waiting trial accepts a type with free devices, even if it needs more than are free.
func isWanted(v *policy.View) bool {
	for j := range v.Line() {
		if slices.ContainsFunc(v.Free.Types(), func(kind string) bool { return v.Free.FreeOf(kind) > 0 && j.Demand.Accepts(kind) }) {
			return true
		}
	}
	return false
}

// growable lists the trials of a sweep that may get more devices now, and returns when there may be another and how
// many devices the sweep holds.
func (p *Policy) growable(v *policy.View, a *policy.App) (due []*policy.Job, next time.Time, held int) {
	for _, j := range a.Jobs {
		held += j.Held().Size()
		if a.Paused || a.Forks > 1 || !j.Running() || j.Ending || !j.TermEnd.After(v.Now) || !canGain(v, j) {
			continue
		}
		since := p.Idle.Since
		if j.Granted.After(since) {
			since = j.Granted
		}
		if at := since.Add(p.set.grow); at.After(v.Now) {
			next = earlier(next, at)
		} else {
			due = append(due, j)
		}
	}
	return due, next, held
}

// canGain reports whether there is room for a trial to run on more devices than it holds, faster than now.
func canGain(v *policy.View, j *policy.Job) bool {
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
		if v.Rate(j, g) > growSpeedup*now {
			return true
		}
	}
	return false
}
