package tuner

import "math"

// How far the work left errs on the long side. Both were chosen on the tasks that the prior of package curve was fitted
// on, before any other was looked at (docs/research/work-left.md).
const (
	// wholeTrials are so many trials, trained to their end, that count beside those that were begun.
	wholeTrials = 4
	// wholeErrors is how many standard errors the mean of those not begun is taken to lie above what was seen.
	wholeErrors = 2.33
)

// outlook errs on the long side. A trial that was begun and has not ended counts as trained to its end: of those that
// were not stopped by some step more than a tenth are, whatever their forecasts say, so that no lower bound would hold for
// nine in ten. Those not begun count as the mean of the others, taken to lie wholeErrors standard errors higher: the trials that end first are the
// short ones, and more are trained to the end once forecasts are trusted.
func (p *performance) outlook() Outlook {
	return longSide(p.limit(), len(p.trials), p.Ended, p.EndedSteps, p.steps())
}

// longSide is the outlook of a sweep of at most n trials, 0 for no end, of which some were begun, and some of those ended after so
// many steps together.
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

// meanShare is the part of its whole training that a trial not begun is taken to go through, on average.
func meanShare(begun, ended int, endedSteps, most int64) float64 {
	seen := float64(begun + wholeTrials)
	whole := float64(begun-ended+wholeTrials) + float64(endedSteps)/float64(most)
	share := min(1, whole/seen)
	return min(1, share+wholeErrors*math.Sqrt(share*(1-share)/seen))
}
