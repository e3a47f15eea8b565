package tuner

import (
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/outbid-dev/outbid/orchestrator/tuner/setting"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Outside replaces a tuner whose sampler runs in a separate process by a plugin tuner with the original tuner as its
// rule. Other tuners are not changed.
func Outside(t *outbidv1.Tuner) {
	sampler := setting.SamplerName(t)
	if !slices.Contains(setting.Learning(), sampler) {
		return
	}
	rule := proto.CloneOf(t)
	rule.Seed, rule.Points = nil, nil
	inner, _ := setting.Tuner(rule)
	fields := inner.Descriptor().Fields()
	inner.Set(fields.ByName(setting.Sampler), protoreflect.ValueOfString("random"))
	t.Kind = &outbidv1.Tuner_Plugin{Plugin: &outbidv1.PluginTuner{
		Settings: &structpb.Struct{Fields: map[string]*structpb.Value{"sampler": structpb.NewStringValue(sampler)}},
		MaxSteps: setting.Int(inner, setting.Steps),
		Rule:     rule,
	}}
}

// RuleSpec returns the spec of the sweep that a plugin's rule would run by itself, with randomly drawn configurations.
func RuleSpec(spec *outbidv1.SweepSpec) *outbidv1.SweepSpec {
	spec = proto.CloneOf(spec)
	own := spec.GetTuner().GetPlugin()
	rule := own.GetRule()
	rule.Seed = spec.GetTuner().Seed //nolint:protogetter // absent stays absent
	rule.Points = spec.GetTuner().GetPoints()
	if inner, name := setting.Tuner(rule); name != "" {
		inner.Set(inner.Descriptor().Fields().ByName(setting.Steps), protoreflect.ValueOfInt64(own.GetMaxSteps()))
	}
	spec.Tuner = rule
	return spec
}
