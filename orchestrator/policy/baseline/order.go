package baseline

import (
	"cmp"
	"math"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/policy"
)

// ranked is a job with its sort key and its place in order of submission, which breaks ties.
type ranked struct {
	job   *policy.Job
	key   float64
	place int
}

// ByKey plans jobs in order of a key, smallest first. Running jobs with a larger key make room, largest first.
func ByKey(v *policy.View, key func(*policy.Job) float64, reason, evicted, round string) policy.Plan {
	var waiting []ranked
	least := math.Inf(1)
	for _, a := range v.Apps {
		for _, j := range a.Jobs {
			if j.Waiting() {
				waiting = append(waiting, ranked{j, key(j), len(waiting)})
				least = min(least, waiting[len(waiting)-1].key)
			}
		}
	}
	p := policy.Refill(v)
	c := &contest{v: v, p: p, reason: reason, evicted: evicted}
	if len(waiting) > 0 {
		c.victims = longer(v, key, least)
	}
	if len(waiting) == 0 || c.hopeless(func(*policy.Job) bool { return true }) {
		return p.Plan(round, "")
	}
	slices.SortFunc(waiting, func(a, b ranked) int { return cmp.Or(cmp.Compare(a.key, b.key), a.place-b.place) })
	for _, r := range waiting {
		before := func(victim *policy.Job) bool { return r.key < key(victim) }
		if c.hopeless(before) {
			break
		}
		c.admit(r.job, before)
	}
	return p.Plan(round, "")
}

// longer lists the running jobs with keys above least, the largest first and the latest submitted first among equals.
func longer(v *policy.View, key func(*policy.Job) float64, least float64) []*policy.Job {
	var running []ranked
	for _, a := range v.Apps {
		for _, j := range a.Jobs {
			if !j.Running() || j.Ending {
				continue
			}
			if k := key(j); k > least {
				running = append(running, ranked{j, k, len(running)})
			}
		}
	}
	slices.SortFunc(running, func(a, b ranked) int { return cmp.Or(cmp.Compare(b.key, a.key), b.place-a.place) })
	jobs := make([]*policy.Job, len(running))
	for i := range running {
		jobs[i] = running[i].job
	}
	return jobs
}
