package spec

import (
	"google.golang.org/protobuf/types/known/structpb"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

const (
	// usualLeast is the fewest trials for which a sampler that learns is the default: it draws the first ten at random anyway.
	usualLeast = 11
	// usualMost is the most: beyond it TPE takes longer to draw a configuration than many take to train.
	usualMost = 1000
)

// UsesModel reports whether a sweep of that many trials (0 for no limit) that names no tuner is drawn by TPE where Optuna is
// installed. The SDK's _usual.py says the same; a test compares them.
func UsesModel(trials int32) bool { return usualLeast <= trials && trials <= usualMost }

// UseModel makes TPE, run by that Python, the sampler of a spec whose tuner is random search.
func UseModel(s *outbidv1.SweepSpec, python string) {
	s.Tuner.Kind = &outbidv1.Tuner_Plugin{Plugin: &outbidv1.PluginTuner{
		Command: []string{python, "-m", "outbid.plugin._optuna"},
		Settings: &structpb.Struct{Fields: map[string]*structpb.Value{
			"sampler": structpb.NewStringValue("tpe"), "startup": structpb.NewNumberValue(usualLeast - 1),
		}},
		Rule: &outbidv1.Tuner{Kind: &outbidv1.Tuner_Random{Random: &outbidv1.RandomSearch{}}},
	}}
}

// usualTuner fills in random search as the tuner of a spec that names none.
func usualTuner(s *outbidv1.SweepSpec) {
	if s.GetTuner().GetKind() != nil {
		return
	}
	if s.GetTuner() == nil {
		s.Tuner = &outbidv1.Tuner{}
	}
	s.Tuner.Kind = &outbidv1.Tuner_Random{Random: &outbidv1.RandomSearch{}}
}
