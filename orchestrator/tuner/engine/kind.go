package engine

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/ladder"
	"github.com/outbid-dev/outbid/orchestrator/tuner/sample"
	"github.com/outbid-dev/outbid/orchestrator/tuner/setting"
	"github.com/outbid-dev/outbid/orchestrator/tuner/space"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// A Kind describes a built-in tuner to this package and, by its traits, to others. Only the tuner's folder names it.
// Defaults, bounds and documentation of its settings are options and comments of its message in sweep.proto.
type Kind struct {
	// Name is the field of the message Tuner.
	Name string
	// Fresh makes the rules of a new sweep, Bare those to load a snapshot into; nil if Fresh does both.
	Fresh, Bare func(*Core) (Rules, error)
	// Check checks rules between several settings, or between settings and the space. t has its defaults. It is nil
	// without such rules.
	Check func(t *outbidv1.Tuner, s *space.Space) error
	// Sampler returns the source of configurations; nil for the one that the setting "sampler" names, or random draws.
	Sampler func(t *outbidv1.Tuner, s *space.Space) (sample.Sampler, error)
	// Raise raises the number of trials that the settings plan to n, for an extension. It is nil for a tuner that makes
	// as many trials as limits.trials allows.
	Raise func(spec *outbidv1.SweepSpec, n int32) error
	// Growth returns the step of the first rung and the growth factor of steps and devices from rung to rung, or zeros
	// if this tuner's settings do not let devices grow. It is nil for a tuner that never does.
	Growth func(t *outbidv1.Tuner) (rung, factor int64)
	// Curves is set if the rules use the trials' curves. They are also kept for a sampler that learns.
	Curves bool
	// Several is set if the sampler learns from all objectives of a sweep, and not from its metric alone.
	Several bool
	// Rule is set if a plugin may draw the tuner's configurations.
	Rule bool
	tuner.Traits
}

// CheckSettings checks the settings of a tuner of this kind by their descriptions and by the tuner's own rules. s is the
// sweep's space, or nil for a plugin that does without one. An error names the field.
func (k *Kind) CheckSettings(t *outbidv1.Tuner, s *space.Space) error {
	m, _ := setting.Tuner(t)
	if err := setting.Check(m); err != nil {
		return fmt.Errorf("tuner.%s.%w", k.Name, err)
	}
	if setting.SamplerName(t) == sample.BayesName && s != nil && s.Dims() > sample.MostParameters {
		return fmt.Errorf("tuner.%s.sampler: bayes takes at most %d parameters, got %d; use random or sobol", k.Name, sample.MostParameters, s.Dims())
	}
	if k.Check != nil {
		return k.Check(t, s)
	}
	return nil
}

// PlannedTrials returns the number of trials that settings plan without the trial limit, or 0 if only limits say how
// many there are.
func (k *Kind) PlannedTrials(spec *outbidv1.SweepSpec) (int32, error) {
	if k.Raise == nil {
		return 0, nil
	}
	free := proto.CloneOf(spec)
	free.GetLimits().Trials = 0
	t, err := New(k, tuner.Settings{Spec: free})
	if err != nil {
		return 0, err
	}
	return int32(max(1, min(t.Outlook().Trials, ladder.MaxTrials))), nil
}
