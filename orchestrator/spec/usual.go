package spec

import (
	"google.golang.org/protobuf/types/known/structpb"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

const (
	// usualLeast is the smallest number of trials for which a learning sampler is the default: it draws the first ten
	// at random.
	usualLeast = 11
	// usualMost is the largest: beyond it, TPE takes longer to draw a configuration than many trials take to train.
	usualMost = 1000
)

// UsesModel reports whether a sweep with this trial limit (0 for none) and without a tuner uses TPE if Optuna is
// installed. The SDK has the same rule; a test compares them.
func UsesModel(trials int32) bool { return usualLeast <= trials && trials <= usualMost }

// UseModel makes TPE, run by the given Python, the sampler of a spec whose tuner is random search.
func UseModel(s *outbidv1.SweepSpec, python string) {
	s.Tuner.Kind = &outbidv1.Tuner_Plugin{Plugin: &outbidv1.PluginTuner{
		Command: []string{python, "-m", "outbid.plugin._optuna"},
		Settings: &structpb.Struct{Fields: map[string]*structpb.Value{
			"sampler": structpb.NewStringValue("tpe"), "startup": structpb.NewNumberValue(usualLeast - 1),
		}},
		Rule: &outbidv1.Tuner{Kind: &outbidv1.Tuner_Random{Random: &outbidv1.RandomSearch{}}},
	}}
}

// usualTuner sets random search in a spec without a tuner.
func usualTuner(s *outbidv1.SweepSpec) {
	if s.GetTuner().GetKind() != nil {
		return
	}
	if s.GetTuner() == nil {
		s.Tuner = &outbidv1.Tuner{}
	}
	s.Tuner.Kind = &outbidv1.Tuner_Random{Random: &outbidv1.RandomSearch{}}
}
