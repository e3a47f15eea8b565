package spec

import (
	"github.com/outbid-dev/outbid/orchestrator/tuner"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Default fills in the fields that a spec does not set, as documented in the schema. It is idempotent.
func Default(s *outbidv1.SweepSpec) {
	fill(&s.Tenant, "default")
	if s.MaxRestarts == nil {
		s.MaxRestarts = new(int32(3))
	}
	if s.Limits == nil {
		s.Limits = &outbidv1.Limits{}
	}
	defaultResources(s)
	defaultCheckpoints(s)
	usualTuner(s)
	defaultTuner(s.GetTuner())
	if f := s.GetFunction(); f != nil {
		fill(&f.Python, "python3")
	}
	if p := s.GetProgram(); p != nil {
		fill(&p.Grace, "10s")
	}
}

// fill sets a field that is zero.
func fill[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func defaultResources(s *outbidv1.SweepSpec) {
	if s.Resources == nil {
		s.Resources = &outbidv1.Resources{}
	}
	if s.Resources.Devices == nil {
		s.Resources.Devices = &outbidv1.DeviceCount{}
	}
	fill(&s.Resources.Devices.Min, 1)
	fill(&s.Resources.Devices.Max, s.Resources.Devices.Min)
}

func defaultCheckpoints(s *outbidv1.SweepSpec) {
	if s.Checkpoints == nil {
		s.Checkpoints = &outbidv1.Checkpoints{}
	}
	c := s.Checkpoints
	if c.Best == 0 && !c.Last && !c.All {
		c.Best = 1
	}
	fill(&c.Every, "30s")
}

func defaultTuner(t *outbidv1.Tuner) {
	tuner.Outside(t)
	switch k := t.GetKind().(type) {
	case *outbidv1.Tuner_Grid:
		fill(&k.Grid.Points, 5)
	case *outbidv1.Tuner_SuccessiveHalving:
		fill(&k.SuccessiveHalving.Eta, 3)
		fill(&k.SuccessiveHalving.MinSteps, 1)
		fill(&k.SuccessiveHalving.Sampler, "random")
	case *outbidv1.Tuner_Hyperband:
		fill(&k.Hyperband.Eta, 3)
		fill(&k.Hyperband.MinSteps, 1)
		fill(&k.Hyperband.Iterations, 1)
		fill(&k.Hyperband.Sampler, "random")
	case *outbidv1.Tuner_Asha:
		fill(&k.Asha.Eta, 3)
		fill(&k.Asha.MinSteps, 1)
		fill(&k.Asha.Form, "promote")
		fill(&k.Asha.Brackets, 1)
		fill(&k.Asha.Sampler, "random")
	case *outbidv1.Tuner_Median:
		fill(&k.Median.GraceSteps, 1)
		fill(&k.Median.MinTrials, 3)
		fill(&k.Median.Sampler, "random")
	case *outbidv1.Tuner_PerformanceCurve:
		// The defaults of interval and grace_steps depend on max_steps but do not change if max_steps is raised, so the
		// tuner sets them.
		fill(&k.PerformanceCurve.Poor, 0.05)
		if k.PerformanceCurve.Keep == nil {
			k.PerformanceCurve.Keep = new(0.1)
		}
		fill(&k.PerformanceCurve.Eta, 3)
		fill(&k.PerformanceCurve.Sampler, "random")
	case *outbidv1.Tuner_FreezeThaw:
		// The default of the first look depends on max_steps but does not change if max_steps is raised, so the tuner
		// sets it.
		fill(&k.FreezeThaw.Poor, 0.01)
		fill(&k.FreezeThaw.Sampler, "model")
	case *outbidv1.Tuner_Pbt:
		fill(&k.Pbt.Population, 10)
		fill(&k.Pbt.Quantile, 0.2)
		if k.Pbt.Resample == nil {
			k.Pbt.Resample = new(0.25)
		}
		if len(k.Pbt.Factors) == 0 {
			k.Pbt.Factors = []float64{0.8, 1.2}
		}
	case *outbidv1.Tuner_Plugin:
		defaultTuner(k.Plugin.GetRule())
	}
}
