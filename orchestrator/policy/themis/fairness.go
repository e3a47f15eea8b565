package themis

import (
	"math"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/bidder"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Fairness returns a sweep's finish-time fairness under any policy: its finish time in the shared cluster over that
// alone on its share (equation 1). For a running sweep the built-in bidder forecasts the finish time; over means that
// it has ended and the time is known. T_id is bidder.Ideal in both cases: what the sweep held, its restarts and bad
// places do not make its share slower. Fairness returns nil if the rate is unknown.
func Fairness(v *policy.View, a *policy.App, over bool) *outbidv1.Fairness {
	if len(v.Nodes) == 0 {
		return nil
	}
	s := v.AppState(a, v.Stock(), func(j *policy.Job) (held, lost bidder.Holding) {
		if j.Running() && (!j.Ending || j.Forked) {
			held = v.Holding(j, j.Gangs...)
		}
		return held, lost
	})
	var took, alone float64
	switch {
	case over:
		if took = s.Elapsed; knows(s) {
			alone = bidder.Ideal(s)
		}
	case len(s.Jobs) > 0:
		rho, ideal := bidder.Estimate(s)
		took, alone = rho*ideal, ideal
	}
	rho := took / alone
	if math.IsNaN(rho) || math.IsInf(rho, 0) || took <= 0 {
		return nil
	}
	return &outbidv1.Fairness{Rho: rho, AloneSeconds: alone, ForecastSeconds: took, MeanSweeps: s.MeanApps}
}

// knows reports whether a sweep's rate was measured on a type that it accepts.
func knows(s *bidder.AppState) bool {
	return slices.ContainsFunc(s.Cluster, func(t bidder.Stock) bool {
		return s.Demand.Accepts(t.Type) && s.Speeds.Knows(t.Type)
	})
}
