package registry_test

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"pgregory.net/rapid"

	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/registry"
	"github.com/outbid-dev/outbid/orchestrator/tuner/tunertest"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// grown returns a sweep's settings after a change to a copy of its spec.
func grown(s tuner.Settings, change func(*outbidv1.SweepSpec)) tuner.Settings {
	c := proto.CloneOf(s.Spec)
	change(c)
	return tuner.Settings{Spec: c}
}

// longer multiplies max_steps of the tuner.
func longer(factor int64) func(*outbidv1.SweepSpec) {
	return func(s *outbidv1.SweepSpec) {
		m := s.GetTuner().ProtoReflect()
		kind := m.Mutable(m.WhichOneof(m.Descriptor().Oneofs().ByName("kind"))).Message()
		field := kind.Descriptor().Fields().ByName("max_steps")
		value := kind.Get(field)
		kind.Set(field, protoreflect.ValueOfInt64(value.Int()*factor))
	}
}

func more(n int32) func(*outbidv1.SweepSpec) {
	return func(s *outbidv1.SweepSpec) {
		if s.GetLimits().GetTrials() > 0 {
			s.Limits.Trials += n
		}
		switch k := s.GetTuner().GetKind().(type) {
		case *outbidv1.Tuner_SuccessiveHalving:
			if k.SuccessiveHalving.Trials > 0 {
				k.SuccessiveHalving.Trials += n * 3
			}
		case *outbidv1.Tuner_Hyperband:
			k.Hyperband.Iterations = max(1, k.Hyperband.Iterations) + 1
		case *outbidv1.Tuner_Pbt:
			if k.Pbt.Population > 0 {
				k.Pbt.Population += n
			}
		}
	}
}

func wider(s *outbidv1.SweepSpec) { s.GetSpace()["lr"].GetFloat().High = 2 }

// Every tuner can be extended twice, in any way, at its end. It meets its contract, and snapshots are restored
// correctly.
func TestExtensionsKeepTheContract(t *testing.T) {
	t.Parallel()
	all := sweeps()
	names := sortedKeys(all)
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom(names).Draw(t, "tuner")
		now := all[name]()
		last := now
		o := anyWeather(t)
		for range rapid.IntRange(1, 2).Draw(t, "extensions") {
			if rapid.Bool().Draw(t, "more") {
				now = grown(now, more(20))
			}
			if rapid.Bool().Draw(t, "longer") {
				now = grown(now, longer(3))
			}
			if rapid.Bool().Draw(t, "wider") {
				now = grown(now, wider)
			}
			if registry.CheckExtension(last, now) != nil {
				now = last // too few trials for this many rungs
			}
			last = now
			o.Extend = append(o.Extend, now)
		}
		result := drive(t, all[name](), o)
		if err := tunertest.Resume(tunertest.Builtin(), all[name](), result.Steps, 1+len(result.Steps)/8); err != nil {
			t.Fatal(err)
		}
	})
}

// An extension in the middle of a sweep has the same effect as at the start, for trials that have not ended.
func TestExtensionsInTheMiddle(t *testing.T) {
	t.Parallel()
	all := sweeps()
	names := sortedKeys(all)
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom(names).Draw(t, "tuner")
		settings := all[name]()
		now := grown(settings, more(20))
		if strings.Contains(name, "halving") && settings.Spec.GetTuner().GetSuccessiveHalving().GetTrials() == 0 {
			now = settings
		}
		made, err := registry.New(settings)
		if err != nil {
			t.Fatal(err)
		}
		at := rapid.IntRange(0, 60).Draw(t, "after")
		o := anyWeather(t)
		steps := 0
		var extended error
		o.Observe = func(tunertest.Step) error {
			if steps++; steps == at {
				_, extended = made.Handle(tuner.Extended{Settings: now})
			}
			return extended
		}
		result, err := tunertest.Drive(made, o)
		if err != nil {
			t.Fatal(err)
		}
		if o.Fail == 0 && steps >= at && at > 0 && len(result.Trials) != made.Outlook().Trials {
			t.Errorf("%d trials, not %d", len(result.Trials), made.Outlook().Trials)
		}
	})
}

func TestLongerStepsTakeTheBestOfTheLastRungOn(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]struct {
		settings tuner.Settings
		// full is the number of trials that reach the new end.
		full int
	}{
		"random": {tunertest.Spec(&outbidv1.Tuner{
			Kind: &outbidv1.Tuner_Random{Random: &outbidv1.RandomSearch{MaxSteps: 9}},
		}, tunertest.Trials(7)), 7},
		// 9, 3 and 1 trials in bracket 2, 5 and 1 in bracket 1, 3 in bracket 0: the best of each bracket continues.
		"hyperband":   {tunertest.Spec(hyperband(&outbidv1.Hyperband{MaxSteps: 9})), 3},
		"asha":        {tunertest.Spec(asha(&outbidv1.Asha{MaxSteps: 9}), tunertest.Trials(54)), 2},
		"asha few":    {tunertest.Spec(asha(&outbidv1.Asha{MaxSteps: 9}), tunertest.Trials(9)), 1},
		"pbt":         {tunertest.Spec(pbt(&outbidv1.Pbt{MaxSteps: 9, Interval: 3})), 10},
		"performance": {tunertest.Spec(performance(&outbidv1.PerformanceCurve{MaxSteps: 9, Keep: new(1.0)}), tunertest.Trials(5)), 5},
		"freeze":      {tunertest.Spec(freeze(&outbidv1.FreezeThaw{MaxSteps: 9, Poor: 1e-9}), tunertest.Trials(5)), 5},
		"median":      {tunertest.Spec(median(&outbidv1.MedianStopping{MaxSteps: 9}), tunertest.Trials(5)), 5},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			made, err := registry.New(want.settings)
			if err != nil {
				t.Fatal(err)
			}
			result, err := tunertest.Drive(made, tunertest.Options{
				Workers: 5, Extend: []tuner.Settings{grown(want.settings, longer(3))},
			})
			if err != nil {
				t.Fatal(err)
			}
			if got := full(result, 27); got != want.full {
				t.Errorf("%d trials were trained for 27 steps, not %d", got, want.full)
			}
		})
	}
}

func TestMoreTrialsForHalvingThatIsDoneAreABracketOfTheirOwn(t *testing.T) {
	t.Parallel()
	settings := tunertest.Spec(halving(&outbidv1.SuccessiveHalving{MaxSteps: 9, Trials: 9}))
	now := grown(settings, func(s *outbidv1.SweepSpec) { s.Tuner.GetSuccessiveHalving().Trials = 27 })
	made, err := registry.New(settings)
	if err != nil {
		t.Fatal(err)
	}
	result, err := tunertest.Drive(made, tunertest.Options{Extend: []tuner.Settings{now}})
	if err != nil {
		t.Fatal(err)
	}
	if len(result.Trials) != 27 || full(result, 9) != 1+2 {
		t.Errorf("%d trials, %d of them to the end, not 27 and 3", len(result.Trials), full(result, 9))
	}
}

func TestBadExtensions(t *testing.T) {
	t.Parallel()
	base := tunertest.Spec(asha(&outbidv1.Asha{MaxSteps: 27}), tunertest.Trials(27))
	for _, c := range []struct {
		name   string
		change func(*outbidv1.SweepSpec)
		want   string
	}{
		{"fewer trials", func(s *outbidv1.SweepSpec) { s.Limits.Trials = 26 }, "limits.trials: 27 cannot become 26"},
		{"shorter", func(s *outbidv1.SweepSpec) { s.Tuner.GetAsha().MaxSteps = 9 }, "tuner.asha.max_steps: 27 cannot become 9"},
		{"eta", func(s *outbidv1.SweepSpec) { s.Tuner.GetAsha().Eta = 4 }, "tuner.asha.eta: 3 cannot become 4"},
		{"seed", func(s *outbidv1.SweepSpec) { s.Tuner.Seed = new(uint64(4)) }, "tuner.seed: 0 cannot become 4"},
		{"metric", func(s *outbidv1.SweepSpec) { s.Metric = "loss" }, `metric: "accuracy" cannot become "loss"`},
		{"mode", tunertest.Minimise, `mode: "max" cannot become "min"`},
		{"tuner", func(s *outbidv1.SweepSpec) { s.Tuner = hyperband(&outbidv1.Hyperband{MaxSteps: 27}) }, "tuner: asha cannot become hyperband"},
		{"narrower", func(s *outbidv1.SweepSpec) { s.Space["lr"].GetFloat().High = 0.5 }, "space.lr"},
		{"bad", func(s *outbidv1.SweepSpec) { s.Tuner.GetAsha().Form = "jump" }, `tuner.asha.form: "jump" is unknown`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			now := grown(base, c.change)
			err := registry.CheckExtension(base, now)
			if err == nil || !strings.HasPrefix(err.Error(), c.want) {
				t.Errorf("got %v, not %s", err, c.want)
			}
			made, err := registry.New(base)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := made.Handle(tuner.Extended{Settings: now}); err == nil {
				t.Error("the tuner took it up")
			}
			if _, err := tunertest.Drive(made, tunertest.Options{}); err != nil {
				t.Errorf("after a refusal: %v", err)
			}
		})
	}
}
