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
	tuner.Default(t)
	if rule := t.GetPlugin().GetRule(); rule != nil {
		defaultTuner(rule)
	}
}
