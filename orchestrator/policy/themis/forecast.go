package themis

import (
	"github.com/outbid-dev/outbid/orchestrator/curve"
	"github.com/outbid-dev/outbid/orchestrator/policy"
)

// forecast is where a trial's learning curve ends, as seen at a step.
type forecast struct {
	Seen, End int64
}

// again is by how much a trial must have gone on for its curve to be fitted anew: a fit costs more than a bid.
const again = 1.3

// Forecasts remember where trials' learning curves end, by app and trial.
type Forecasts map[string]map[int32]forecast

// End is the step from which on a job's learning curve has nothing more to gain, by the most optimistic of the
// plausible curves (section 5.2, performance curve stopping); 0 if there is none to say.
func (f Forecasts) End(j *policy.Job) float64 {
	limit := max(j.TotalSteps, j.UntilStep)
	if len(j.Curve) < curve.MinPoints || limit <= 0 {
		return 0
	}
	newest := j.Curve[len(j.Curve)-1].Step
	known, ok := f[j.App.ID][j.Trial]
	if !ok || float64(newest) >= again*float64(known.Seen) || newest < known.Seen {
		points := make([]curve.Point, len(j.Curve))
		for i, q := range j.Curve {
			points[i] = curve.Point{Step: q.Step, Value: q.Value}
		}
		known = forecast{Seen: newest}
		if c, ok := curve.Fit(points, !j.Minimise); ok {
			known.End = c.Ends(limit).Latest
		}
		if f[j.App.ID] == nil {
			f[j.App.ID] = map[int32]forecast{}
		}
		f[j.App.ID][j.Trial] = known
	}
	return float64(known.End)
}

// Forget drops what is known of an app's trials.
func (f Forecasts) Forget(app string) { delete(f, app) }
