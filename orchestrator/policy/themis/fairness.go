package themis

import (
	"math"

	"github.com/outbid-dev/outbid/orchestrator/agent"
	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Fairness is how an app fares by sharing the cluster, under whatever policy: its finish time over that alone on its
// share (equation 1). While it runs both are forecast by the built-in agent. Once it is over its finish time is known, and
// so is the work it was: the device-seconds that it held, starts and checkpoints included. nil if nothing can be said.
// forecast says at which step a job's learning curve ends, 0 if it cannot; Forecasts.End does.
func Fairness(v *policy.View, a *policy.App, over bool, forecast func(*policy.Job) float64) *outbidv1.Fairness {
	if len(v.Nodes) == 0 {
		return nil
	}
	s := v.Situation(a, v.Stock(), func(j *policy.Job) (held, lost agent.Holding) {
		if j.Running() && !j.Ending {
			held = v.Holding(j, j.Gang)
		}
		return held, lost
	}, forecast)
	var took, alone float64
	switch {
	case over:
		took, alone = s.Elapsed, share(s, a)
	case len(s.Jobs) > 0:
		rho, ideal := agent.Estimate(s)
		took, alone = rho*ideal, ideal
	}
	rho := took / alone
	if math.IsNaN(rho) || math.IsInf(rho, 0) || took <= 0 {
		return nil
	}
	return &outbidv1.Fairness{Rho: rho, AloneSeconds: alone, ForecastSeconds: took, MeanSweeps: s.MeanApps}
}

// share is T_id of an app that is over: its device-seconds on as many devices as it could use at once, but at least the
// time of a trial that is trained to the end, times the mean number of apps.
func share(s *agent.Situation, a *policy.App) float64 {
	fastest := 0.0
	for _, t := range s.Cluster {
		if a.Demand.Accepts(t.Type) && a.Speeds.Knows(t.Type) {
			fastest = max(fastest, a.Speeds.Rate(t.Type, a.Demand.Max, cluster.SameMachine))
		}
	}
	alone := a.DeviceSeconds / float64(max(1, agent.Most(s)))
	if fastest > 0 {
		alone = max(alone, s.TotalSteps/fastest)
	}
	weight := s.Weight
	if weight <= 0 {
		weight = 1
	}
	return alone * max(1, s.MeanApps) / weight
}
