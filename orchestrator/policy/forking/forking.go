// Package forking makes of places for the forks of a job the grants of a round (HadarE, section V): the steps that the job has left
// are divided over them in proportion to their rates.
package forking

import (
	"cmp"
	"slices"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/fork"
	"github.com/outbid-dev/outbid/orchestrator/policy"
)

// Grants are those of a round of a job that was granted one of the gangs until then: one for each fork that has a share, the largest
// first. Within the slot no more of the fastest get a share than it takes to do what is left; 0 is no bound, so that all do. The last
// step before the job's target is left out, and is trained by one alone, so that what is reported there is of the averaged weights. If
// there is nothing to divide, or fewer shares than the least forks that the job may have, there is one grant, and no round.
func Grants(v *policy.View, g policy.Grant, gangs []cluster.Gang, slot time.Duration) []policy.Grant {
	rates := make([]float64, len(gangs))
	sum := 0.0
	for i, gang := range gangs {
		rates[i] = v.Rate(g.Job, gang)
		sum += max(0, rates[i])
	}
	left := Left(g.Job)
	if slot == 0 && sum > 0 {
		const less = .999 // than all of them need together
		slot = max(1, time.Duration(less*float64(left)/sum*float64(time.Second)))
	}
	shares := fork.Divide(left, rates, slot)
	order := make([]int, 0, len(gangs))
	for i, share := range shares {
		if share > 0 {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(shares[b], shares[a]) })
	switch {
	case len(order) == 0:
		return []policy.Grant{g}
	case len(order) < max(2, g.Job.LeastForks):
		g.Gang = gangs[order[0]]
		return []policy.Grant{g}
	}
	grants := make([]policy.Grant, len(order))
	for k, i := range order {
		grants[k] = g
		grants[k].Gang, grants[k].Fork, grants[k].Steps, grants[k].Rate = gangs[i], k > 0, shares[i], rates[i]
		grants[k].Reason = g.Reason + ", as one of its forks"
	}
	return grants
}

// Left is how many steps of a job that waits can be divided: those from its checkpoint to the last but one before its target.
func Left(j *policy.Job) int64 { return j.UntilStep - j.StartStep - 1 }
