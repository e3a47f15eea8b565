package tuner

import "math"

// How far the work left errs on the long side. Both were chosen on the tasks that the prior of package curve was fitted
// on, before any other was looked at (docs/work-left.md).
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
	n := p.limit()
	if n == 0 {
		return Outlook{Rungs: []Rung{{UntilStep: p.steps()}}}
	}
	n = max(n, len(p.trials))
	live := times(int64(len(p.trials)-p.Ended), p.steps())
	unbegun := p.meanShare() * float64(n-len(p.trials)) * float64(p.steps())
	steps := plus(plus(p.EndedSteps, live), int64(math.Ceil(min(unbegun, math.MaxInt64/4))))
	return Outlook{Trials: n, Steps: steps, Rungs: []Rung{{UntilStep: p.steps(), Trials: n, Steps: steps}}}
}

// meanShare is the part of its whole training that a trial not begun is taken to go through, on average.
func (p *performance) meanShare() float64 {
	seen := float64(len(p.trials) + wholeTrials)
	whole := float64(len(p.trials)-p.Ended+wholeTrials) + float64(p.EndedSteps)/float64(p.steps())
	share := min(1, whole/seen)
	return min(1, share+wholeErrors*math.Sqrt(share*(1-share)/seen))
}
