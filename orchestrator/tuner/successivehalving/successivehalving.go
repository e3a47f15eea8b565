// Package successivehalving follows Jamieson and Talwalkar, "Non-stochastic Best Arm Identification and Hyperparameter
// Optimization" (AISTATS 2016), as printed by Li et al., "A System for Massively Parallel Hyperparameter Tuning" (MLSys
// 2020), algorithm 1: rung i holds n_i = floor(n * eta^-i) trials trained until r_i = r * eta^i, for i = 0 ..
// floor(log_eta(R/r)). The last rung is raised to R. Algorithm 1 requires n >= eta^floor(log_eta(R/r)), so that at
// least one trial is trained for R; fewer are an error here too.
//
// An extension to more steps adds rungs above. Of the trials that completed the last rung, the best 1/eta, and at least
// one, continue. Additional trials join the first rung if it is still undecided, and otherwise form a new bracket.
package successivehalving

import (
	"fmt"

	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/engine"
	"github.com/outbid-dev/outbid/orchestrator/tuner/halving"
	"github.com/outbid-dev/outbid/orchestrator/tuner/ladder"
	"github.com/outbid-dev/outbid/orchestrator/tuner/saturate"
	"github.com/outbid-dev/outbid/orchestrator/tuner/space"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// design makes the bracket.
type design struct{}

// Kind describes the tuner to the registry.
func Kind() *engine.Kind {
	return &engine.Kind{
		Name:  "successive_halving",
		Fresh: func(c *engine.Core) (engine.Rules, error) { return halving.Start(c, design{}) },
		Bare:  func(c *engine.Core) (engine.Rules, error) { return halving.Bare(c, design{}), nil },
		Check: check,
		Raise: func(spec *outbidv1.SweepSpec, n int32) error {
			set := spec.GetTuner().GetSuccessiveHalving()
			set.Trials = max(n, set.GetTrials())
			return nil
		},
		Growth: func(t *outbidv1.Tuner) (rung, factor int64) {
			if set := t.GetSuccessiveHalving(); set.GetGrow() {
				return set.GetMinSteps(), int64(set.GetEta())
			}
			return 0, 0
		},
		Rule: true, Traits: tuner.Traits{Rungs: tuner.Phases},
	}
}

func check(t *outbidv1.Tuner, _ *space.Space) error {
	set := t.GetSuccessiveHalving()
	if set.GetTrials() > 0 {
		return nil // then brackets checks that they are enough
	}
	return halving.CheckFirstRung("successive_halving", set.GetMaxSteps(), set.GetMinSteps(), int64(set.GetEta()))
}

func (design) Brackets(s tuner.Settings) ([]halving.Bracket, error) {
	set := s.WithDefaults().GetSuccessiveHalving()
	eta := int64(set.GetEta())
	levels := ladder.Rising(set.GetMinSteps(), set.GetMaxSteps(), eta)
	least := saturate.Power(eta, len(levels)-1)
	n := int64(set.GetTrials())
	if n == 0 {
		n = least
	}
	if err := enough(n, least, len(levels), s.Spec); err != nil {
		return nil, err
	}
	return []halving.Bracket{halving.NewBracket(0, int(n), eta, levels)}, nil
}

// enough checks that at least one trial reaches the last rung.
func enough(n, least int64, rungs int, spec *outbidv1.SweepSpec) error {
	if n < least {
		return fmt.Errorf("tuner.successive_halving.trials: %d is too few for %d rungs; the least is %d, or raise "+
			"min_steps", n, rungs, least)
	}
	if limit := int64(spec.GetLimits().GetTrials()); limit > 0 && limit < least {
		return fmt.Errorf("limits.trials: %d is too few for the %d rungs of successive halving; the least is %d, or "+
			"raise min_steps", limit, rungs, least)
	}
	return nil
}

// Added returns the trials that the new settings ask for in addition to the old ones.
func (d design) Added(old, now tuner.Settings) ([]halving.Bracket, error) {
	was, err := d.Brackets(old)
	if err != nil {
		return nil, err
	}
	is, err := d.Brackets(now)
	if err != nil {
		return nil, err
	}
	is[0].Full -= was[0].Full
	if is[0].Full <= 0 {
		return nil, nil
	}
	return is, nil
}
