// Package workleft estimates how much a tuner that ends trials early will still train.
package workleft

import (
	"math"

	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/saturate"
)

// These constants make the estimate of the remaining work err on the long side. They were chosen on the tasks that the
// prior of package curve was fitted on, before the estimate was tested on others (docs/research/work-left.md).
const (
	// wholeTrials is the number of imaginary fully trained trials that are added to the trials seen.
	wholeTrials = 4
	// wholeErrors is the number of standard errors that are added to the mean for trials that have not begun.
	wholeErrors = 2.33
)

// Outlook returns the outlook of a sweep of at most n trials (0 for no limit). begun trials have begun, and ended of
// them ended after endedSteps steps in total. most is the number of steps of a full training.
func Outlook(n, begun, ended int, endedSteps, most int64) tuner.Outlook {
	if n == 0 {
		return tuner.Outlook{Rungs: []tuner.Rung{{UntilStep: most}}}
	}
	n = max(n, begun)
	live := saturate.Times(int64(begun-ended), most)
	unbegun := meanShare(begun, ended, endedSteps, most) * float64(n-begun) * float64(most)
	steps := saturate.Plus(saturate.Plus(endedSteps, live), int64(math.Ceil(min(unbegun, math.MaxInt64/4))))
	return tuner.Outlook{Trials: n, Steps: steps, Rungs: []tuner.Rung{{UntilStep: most, Trials: n, Steps: steps}}}
}

// meanShare returns the average part of a full training that a trial that has not begun is expected to run.
func meanShare(begun, ended int, endedSteps, most int64) float64 {
	seen := float64(begun + wholeTrials)
	whole := float64(begun-ended+wholeTrials) + float64(endedSteps)/float64(most)
	share := min(1, whole/seen)
	return min(1, share+wholeErrors*math.Sqrt(share*(1-share)/seen))
}
