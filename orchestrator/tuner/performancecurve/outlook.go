package performancecurve

import (
	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/workleft"
)

// Outlook errs on the long side. It counts a trial that has begun but not ended as trained to its end: whatever the
// forecasts, more than a tenth of the trials that are still running at a step will be, so no lower estimate would hold
// for nine trials in ten. Trials that have not begun count as the mean of the others plus a few standard errors,
// because the trials that end first are the short ones, and more trials are trained to the end once forecasts are
// trusted.
func (p *performance) Outlook() tuner.Outlook {
	return workleft.Outlook(p.Limit(), len(p.Trials), p.Ended, p.EndedSteps, p.Steps)
}
