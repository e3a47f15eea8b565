package spec

import (
	"github.com/outbid-dev/outbid/orchestrator/tuner/sample"
	"github.com/outbid-dev/outbid/orchestrator/tuner/space"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// usualTuner sets the default in a spec without a tuner: auto, bayes with several objectives, or random search with more
// parameters than these take.
func usualTuner(s *outbidv1.SweepSpec) {
	if s.GetTuner().GetKind() != nil {
		return
	}
	if s.GetTuner() == nil {
		s.Tuner = &outbidv1.Tuner{}
	}
	compiled, err := space.Compile(s.GetSpace(), nil)
	switch {
	case err != nil || compiled.Dims() > sample.MostParameters:
		s.Tuner.Kind = &outbidv1.Tuner_Random{Random: &outbidv1.RandomSearch{}}
	case len(s.GetObjectives()) > 0:
		s.Tuner.Kind = &outbidv1.Tuner_Bayes{Bayes: &outbidv1.BayesianSearch{}}
	default:
		s.Tuner.Kind = &outbidv1.Tuner_Auto{Auto: &outbidv1.Auto{}}
	}
}

// UsualReason says which tuner a spec without one has, and why. usualTuner must have set it.
func UsualReason(s *outbidv1.SweepSpec) string {
	switch {
	case s.GetTuner().GetAuto() != nil:
		return "tuner: auto, because the sweep sets none: Bayesian search that stops trials with little chance early; " +
			"with 'bayes' all trials train to the end"
	case s.GetTuner().GetBayes() != nil:
		return "tuner: bayes, because the sweep sets none and has several objectives: Bayesian search along their Pareto front; " +
			"all trials train to the end"
	default:
		return "tuner: random, because the sweep sets none and has more parameters than Bayesian search takes; all trials train to the end"
	}
}
