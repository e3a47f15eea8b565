package tuner

import "math"

// These constants make the estimate of the remaining work err on the long side. They were chosen on the tasks that the
// prior of package curve was fitted on, before the estimate was tested on others (docs/research/work-left.md).
const (
	// wholeTrials is the number of imaginary fully trained trials that are added to the trials seen.
	wholeTrials = 4
	// wholeErrors is the number of standard errors that are added to the mean for trials that have not begun.
	wholeErrors = 2.33
)

// longSide returns the outlook of a sweep of at most n trials (0 for no limit). begun trials have begun, and ended of
// them ended after endedSteps steps in total. most is the number of steps of a full training.
func longSide(n, begun, ended int, endedSteps, most int64) Outlook {
	if n == 0 {
		return Outlook{Rungs: []Rung{{UntilStep: most}}}
	}
	n = max(n, begun)
	live := times(int64(begun-ended), most)
	unbegun := meanShare(begun, ended, endedSteps, most) * float64(n-begun) * float64(most)
	steps := plus(plus(endedSteps, live), int64(math.Ceil(min(unbegun, math.MaxInt64/4))))
	return Outlook{Trials: n, Steps: steps, Rungs: []Rung{{UntilStep: most, Trials: n, Steps: steps}}}
}

// meanShare returns the average part of a full training that a trial that has not begun is expected to run.
func meanShare(begun, ended int, endedSteps, most int64) float64 {
	seen := float64(begun + wholeTrials)
	whole := float64(begun-ended+wholeTrials) + float64(endedSteps)/float64(most)
	share := min(1, whole/seen)
	return min(1, share+wholeErrors*math.Sqrt(share*(1-share)/seen))
}
