package themis

import (
	"math"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/agent"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Fairness is how an app fares by sharing the cluster, under whatever policy: its finish time over that alone on its
// share (equation 1). While it runs its finish time is forecast by the built-in agent; once it is over it is known. T_id is
// agent.Ideal either way: what the app held, starts and bad places included, does not make its share any slower. nil if
// nothing can be said.
func Fairness(v *policy.View, a *policy.App, over bool) *outbidv1.Fairness {
	if len(v.Nodes) == 0 {
		return nil
	}
	s := v.AppState(a, v.Stock(), func(j *policy.Job) (held, lost agent.Holding) {
		if j.Running() && (!j.Ending || j.Forked) {
			held = v.Holding(j, j.Gangs...)
		}
		return held, lost
	})
	var took, alone float64
	switch {
	case over:
		if took = s.Elapsed; knows(s) {
			alone = agent.Ideal(s)
		}
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

// knows says whether an app's rate was measured on a type that it accepts.
func knows(s *agent.AppState) bool {
	return slices.ContainsFunc(s.Cluster, func(t agent.Stock) bool {
		return s.Demand.Accepts(t.Type) && s.Speeds.Knows(t.Type)
	})
}
