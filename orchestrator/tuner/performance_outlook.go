package tuner

// outlook errs on the long side. It counts a trial that has begun but not ended as trained to its end: whatever the
// forecasts, more than a tenth of the trials that are still running at a step will be, so no lower estimate would hold
// for nine trials in ten. Trials that have not begun count as the mean of the others plus wholeErrors standard errors,
// because the trials that end first are the short ones, and more trials are trained to the end once forecasts are
// trusted.
func (p *performance) outlook() Outlook {
	return longSide(p.limit(), len(p.trials), p.Ended, p.EndedSteps, p.steps)
}
