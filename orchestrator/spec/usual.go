package spec

import (
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/outbid-dev/outbid/orchestrator/tuner/sample"
	"github.com/outbid-dev/outbid/orchestrator/tuner/space"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

const (
	// usualLeast is the smallest number of trials for which TPE is the default with several objectives: it draws the first
	// ten at random.
	usualLeast = 11
	// usualMost is the largest: beyond it, TPE takes longer to draw a configuration than many trials take to train.
	usualMost = 1000
)

// usualTuner sets the default in a spec without a tuner: auto, or random search with several objectives or more parameters
// than Bayesian search takes.
func usualTuner(s *outbidv1.SweepSpec) {
	if s.GetTuner().GetKind() != nil {
		return
	}
	if s.GetTuner() == nil {
		s.Tuner = &outbidv1.Tuner{}
	}
	s.Tuner.Kind = &outbidv1.Tuner_Random{Random: &outbidv1.RandomSearch{}}
	if compiled, err := space.Compile(s.GetSpace(), nil); err == nil && len(s.GetObjectives()) == 0 && compiled.Dims() <= sample.MostParameters {
		s.Tuner.Kind = &outbidv1.Tuner_Auto{Auto: &outbidv1.Auto{}}
	}
}

// UsualReason says which tuner a spec without one has, and why. usualTuner or UseModel must have set it.
func UsualReason(s *outbidv1.SweepSpec) string {
	switch several := len(s.GetObjectives()) > 0; {
	case s.GetTuner().GetAuto() != nil:
		return "tuner: auto, because the sweep sets none: Bayesian search that stops trials with little chance early; " +
			"with 'bayes' all trials train to the end"
	case s.GetTuner().GetPlugin() != nil:
		return "tuner: tpe, because the sweep sets none and has several objectives; all trials train to the end"
	case several:
		return "tuner: random, because the sweep sets none and has several objectives; all trials train to the end"
	default:
		return "tuner: random, because the sweep sets none and has more parameters than Bayesian search takes; all trials train to the end"
	}
}

// UsesModel reports whether TPE is the default of a sweep without a tuner where Optuna is installed: with several objectives, unless
// it has few trials or very many. The SDK has the same rule; a test compares them.
func UsesModel(s *outbidv1.SweepSpec) bool {
	trials := s.GetLimits().GetTrials()
	return len(s.GetObjectives()) > 0 && usualLeast <= trials && trials <= usualMost
}

// UseModel makes TPE, run by the given Python, the sampler of a spec whose tuner is random search.
func UseModel(s *outbidv1.SweepSpec, python string) {
	s.Tuner.Kind = &outbidv1.Tuner_Plugin{Plugin: &outbidv1.PluginTuner{
		Command: []string{python, "-m", "outbid.plugin.optuna"},
		Settings: &structpb.Struct{Fields: map[string]*structpb.Value{
			"sampler": structpb.NewStringValue("tpe"), "startup": structpb.NewNumberValue(usualLeast - 1),
		}},
		Rule: &outbidv1.Tuner{Kind: &outbidv1.Tuner_Random{Random: &outbidv1.RandomSearch{}}},
	}}
}
