package baseline

import (
	"math"

	"github.com/outbid-dev/outbid/orchestrator/policy"
)

// Unit is what a policy orders: single trials, or sweeps with all their trials.
type Unit string

// Units.
const (
	ByJob Unit = "job"
	ByApp Unit = "app"
)

// UnitOption reads the option that most of these policies have.
func UnitOption(o *policy.Options) Unit {
	return Unit(o.Text("unit", string(ByJob), "what is ordered: job, each trial; or app, sweeps with all their trials", string(ByJob), string(ByApp)))
}

// bestRate returns the steps per second of a job on n devices of its fastest type, on one node.
func bestRate(v *policy.View, j *policy.Job, n int) float64 {
	best := 0.0
	for _, kind := range v.Free.Types() {
		if j.Demand.Accepts(kind) {
			best = max(best, j.Speeds.Rate(kind, n, 0))
		}
	}
	return best
}

// timeLeft returns how many seconds a job still needs on as many devices as it can use, of its fastest type. It does
// not depend on where or whether the job runs, so two jobs never evict each other in turn. It is infinite if the job's
// length is unknown.
func timeLeft(v *policy.View, j *policy.Job) float64 {
	return quotient(v.StepsLeft(j), bestRate(v, j, max(1, j.Demand.Max)), j)
}

// ServiceLeft returns the device-seconds that a job still needs on as few devices as it can run on.
func ServiceLeft(v *policy.View, j *policy.Job) float64 {
	n := max(1, j.Demand.Min)
	return float64(n) * quotient(v.StepsLeft(j), bestRate(v, j, n), j)
}

func quotient(steps, rate float64, j *policy.Job) float64 {
	if rate <= 0 || j.TotalSteps == 0 && j.UntilStep == 0 {
		return math.Inf(1)
	}
	return steps / rate
}

// AppServiceLeft returns the device-seconds that a sweep still needs: the tuner's forecast minus what has been trained,
// or the rest of its present trials if that is more or the tuner has no forecast.
func AppServiceLeft(v *policy.View, a *policy.App) float64 {
	own := 0.0
	for _, j := range a.Jobs {
		own += ServiceLeft(v, j)
	}
	if len(a.Jobs) == 0 || math.IsInf(own, 1) {
		return own
	}
	j := a.Jobs[0]
	n := max(1, j.Demand.Min)
	if rate := bestRate(v, j, n); rate > 0 {
		own = max(own, float64(a.Outlook().Steps-a.StepsDone)*float64(n)/rate)
	}
	return own
}

// appTimeLeft returns how many seconds a sweep still needs if all its trials get what they can use.
func appTimeLeft(v *policy.View, a *policy.App) float64 {
	size, width := 0, 0
	for i := range v.Nodes {
		size += len(v.Nodes[i].Devices)
	}
	for _, j := range a.Jobs {
		width += max(1, j.Demand.Max)
	}
	return AppServiceLeft(v, a) / float64(max(1, min(size, width)))
}

// PerApp caches a figure of each sweep for one decision.
func PerApp(v *policy.View, figure func(*policy.View, *policy.App) float64) func(*policy.Job) float64 {
	known := make(map[*policy.App]float64, len(v.Apps))
	return func(j *policy.Job) float64 {
		f, ok := known[j.App]
		if !ok {
			f = figure(v, j.App)
			known[j.App] = f
		}
		return f
	}
}
