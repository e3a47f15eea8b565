// Package forking turns places for the forks of a job into the grants of a fork slot (HadarE, section V): the job's
// remaining steps are divided over them in proportion to their rates.
package forking

import (
	"cmp"
	"slices"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/fork"
	"github.com/outbid-dev/outbid/orchestrator/policy"
)

// Grants returns the grants of a job's fork slot, given a grant of one of the gangs: one for each fork with a share,
// the largest share first. Only as many of the fastest forks get a share as are needed to do the remaining steps within
// slot; with slot 0 all do. The last step before the job's target is left out, and is trained by one fork alone, so
// that its report is of the averaged weights. If no steps can be divided, or there would be fewer forks than the job's
// LeastForks, it returns a single grant without a share.
func Grants(v *policy.View, g policy.Grant, gangs []cluster.Gang, slot time.Duration) []policy.Grant {
	rates := make([]float64, len(gangs))
	sum := 0.0
	for i, gang := range gangs {
		rates[i] = v.Rate(g.Job, gang)
		sum += max(0, rates[i])
	}
	left := Left(g.Job)
	if slot == 0 && sum > 0 {
		const less = .999 // less than all of them need together
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

// Left returns how many steps of a waiting job can be divided: those from its checkpoint to the last but one before its
// target.
func Left(j *policy.Job) int64 { return j.UntilStep - j.StartStep - 1 }
