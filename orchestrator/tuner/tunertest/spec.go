package tunertest

import (
	"github.com/outbid-dev/outbid/orchestrator/tuner"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Spec returns the settings of a sweep over one float, which tests can change.
func Spec(t *outbidv1.Tuner, change ...func(*outbidv1.SweepSpec)) tuner.Settings {
	s := &outbidv1.SweepSpec{
		Name: "test", Metric: "accuracy", Mode: "max", Tuner: t,
		Space: map[string]*outbidv1.Parameter{
			"lr": {Kind: &outbidv1.Parameter_Float{Float: &outbidv1.FloatRange{Low: 1e-4, High: 1, Log: true}}},
		},
	}
	for _, f := range change {
		f(s)
	}
	return tuner.Settings{Spec: s}
}

// Trials limits the number of trials of a Spec.
func Trials(n int32) func(*outbidv1.SweepSpec) {
	return func(s *outbidv1.SweepSpec) { s.Limits = &outbidv1.Limits{Trials: n} }
}

// Minimise makes a lower metric of a Spec better.
func Minimise(s *outbidv1.SweepSpec) { s.Mode = "min" }
