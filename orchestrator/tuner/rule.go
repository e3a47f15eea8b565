package tuner

import (
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/structpb"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Modelled reports whether a sampler is one of Optuna's, which learn from results and run in a separate process.
func Modelled(sampler string) bool {
	switch sampler {
	case "tpe", "gp", "cmaes", "nsga2":
		return true
	default:
		return false
	}
}

// Outside replaces a tuner whose sampler runs in a separate process by a plugin tuner with the original tuner as its
// rule. Other tuners are not changed.
func Outside(t *outbidv1.Tuner) {
	sampler := samplerName(t)
	if !Modelled(sampler) {
		return
	}
	rule := proto.CloneOf(t)
	rule.Seed, rule.Points = nil, nil
	inner, fields := ruleKind(rule)
	inner.Set(fields.ByName("sampler"), protoreflect.ValueOfString("random"))
	t.Kind = &outbidv1.Tuner_Plugin{Plugin: &outbidv1.PluginTuner{
		Settings: &structpb.Struct{Fields: map[string]*structpb.Value{"sampler": structpb.NewStringValue(sampler)}},
		MaxSteps: inner.Get(fields.ByName("max_steps")).Int(),
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
	if inner, fields := ruleKind(rule); fields != nil {
		inner.Set(fields.ByName("max_steps"), protoreflect.ValueOfInt64(own.GetMaxSteps()))
	}
	spec.Tuner = rule
	return spec
}

// ruleKind returns the settings of the tuner that is set and their fields, or nil if none is set.
func ruleKind(t *outbidv1.Tuner) (protoreflect.Message, protoreflect.FieldDescriptors) {
	m := t.ProtoReflect()
	kind := m.WhichOneof(m.Descriptor().Oneofs().ByName("kind"))
	if kind == nil {
		return nil, nil
	}
	inner := m.Mutable(kind).Message()
	return inner, inner.Descriptor().Fields()
}
