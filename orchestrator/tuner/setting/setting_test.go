package setting_test

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/outbid-dev/outbid/orchestrator/tuner/setting"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// messages returns the settings of every tuner, by name.
func messages() map[string]protoreflect.Message {
	t := (&outbidv1.Tuner{}).ProtoReflect()
	kinds := t.Descriptor().Oneofs().ByName("kind").Fields()
	all := map[string]protoreflect.Message{}
	for i := range kinds.Len() {
		all[string(kinds.Get(i).Name())] = t.NewField(kinds.Get(i)).Message()
	}
	return all
}

// Every default is within its own bounds, and the only settings that a user has to give are the required ones.
func TestDefaultsAreAllowed(t *testing.T) {
	t.Parallel()
	for name, m := range messages() {
		setting.Default(m)
		once := proto.Clone(m.Interface())
		if setting.Default(m); !proto.Equal(once, m.Interface()) {
			t.Errorf("%s: the defaults of %v are %v", name, once, m)
		}
		for i := range m.Descriptor().Fields().Len() {
			if f := m.Descriptor().Fields().Get(i); setting.Of(f).GetRequired() != "" {
				m.Set(f, protoreflect.ValueOfInt64(100))
			}
		}
		if err := setting.Check(m); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Every number and word of a built-in tuner is described, and all tuners have max_steps.
func TestEverySettingIsDescribed(t *testing.T) {
	t.Parallel()
	for name, m := range messages() {
		fields := m.Descriptor().Fields()
		if f := fields.ByName(setting.Steps); f == nil || f.Kind() != protoreflect.Int64Kind {
			t.Errorf("%s does not have max_steps, a whole number", name)
		}
		for i := range fields.Len() {
			f, s := fields.Get(i), setting.Of(fields.Get(i))
			switch f.Kind() {
			case protoreflect.BoolKind, protoreflect.MessageKind:
				continue
			case protoreflect.StringKind:
				if len(s.GetWords()) == 0 && !f.IsList() {
					t.Errorf("%s.%s does not say which words are allowed", name, f.Name())
				}
			default:
				if s.Min == nil && s.Max == nil && s.Above == nil && s.Below == nil && s.GetRequired() == "" && s.GetZero() == "" {
					t.Errorf("%s.%s does not have bounds", name, f.Name())
				}
			}
			if other := s.GetAtMost(); other != "" && fields.ByName(protoreflect.Name(other)) == nil {
				t.Errorf("%s.%s is to be at most %s, which is not a setting", name, f.Name(), other)
			}
		}
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		m    proto.Message
		want string
	}{
		{&outbidv1.FreezeThaw{MaxSteps: 100, MinSteps: 200}, "min_steps: must be from 1 to max_steps (100), or 0 for a 40th of it, got 200"},
		{&outbidv1.FreezeThaw{MaxSteps: 100, MinSteps: -1}, "min_steps: must be from 1 to max_steps (100), or 0 for a 40th of it, got -1"},
		{&outbidv1.Asha{MaxSteps: 9, MinSteps: 10}, "min_steps: 10 is above max_steps (9)"},
		{&outbidv1.Asha{MaxSteps: -9}, "max_steps: -9 is not above 0; set the number of steps of the longest trials"},
		{&outbidv1.RandomSearch{MaxSteps: -1}, "max_steps: -1 is negative; use 0 to train until the code ends"},
		{&outbidv1.Pbt{MaxSteps: 9, Interval: 1, Factors: []float64{1, -1}}, "factors[1]: must be above 0, got -1"},
		{&outbidv1.Pbt{MaxSteps: 9, Interval: 1, Quantile: 0.6}, "quantile: must be above 0 and at most 0.5, got 0.6"},
		{&outbidv1.PerformanceCurve{MaxSteps: 9, Keep: new(-0.1)}, "keep: must be a share from 0 to 1, got -0.1; 0.1 is usual"},
		{&outbidv1.Asha{MaxSteps: 9, Sampler: "dice"}, `sampler: "dice" is unknown; use random, sobol, bayes, tpe, gp, cmaes or nsga2`},
	} {
		setting.Default(c.m.ProtoReflect())
		if err := setting.Check(c.m.ProtoReflect()); err == nil || err.Error() != c.want {
			t.Errorf("%v: got %v, want %s", c.m, err, c.want)
		}
	}
}

func TestDefaultKeepsWhatIsSet(t *testing.T) {
	t.Parallel()
	set := &outbidv1.Pbt{MaxSteps: 9, Population: 4, Resample: new(0.0), Factors: []float64{2}}
	setting.Default(set.ProtoReflect())
	if set.GetPopulation() != 4 || set.GetResample() != 0 || len(set.GetFactors()) != 1 || set.GetQuantile() != 0.2 {
		t.Errorf("got %v", set)
	}
}

func TestList(t *testing.T) {
	t.Parallel()
	for want, names := range map[string]string{"": "", "a": "a", "a or b": "a b", "a, b or c": "a b c"} {
		if got := setting.List(strings.Fields(names)); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
