package tuner

import (
	"fmt"

	"github.com/outbid-dev/outbid/orchestrator/tuner/space"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// successiveHalving follows Jamieson and Talwalkar, "Non-stochastic Best Arm Identification and Hyperparameter
// Optimization" (AISTATS 2016), as printed by Li et al., "A System for Massively Parallel Hyperparameter Tuning" (MLSys
// 2020), algorithm 1: rung i holds n_i = floor(n * eta^-i) trials trained until r_i = r * eta^i, for i = 0 ..
// floor(log_eta(R/r)). The last rung is raised to R. Algorithm 1 requires n >= eta^floor(log_eta(R/r)), so that at
// least one trial is trained for R; fewer are an error here too.
//
// An extension to more steps adds rungs above. Of the trials that completed the last rung, the best 1/eta, and at least
// one, continue. Additional trials join the first rung if it is still undecided, and otherwise form a new bracket.
type successiveHalving struct{}

func successiveHalvingKind() *kind {
	return &kind{
		name:  "successive_halving",
		fresh: func(c *core) (rules, error) { return startHalving(c, successiveHalving{}) },
		bare:  func(c *core) (rules, error) { return bareHalving(c, successiveHalving{}), nil },
		check: checkSuccessiveHalving,
		raise: func(spec *outbidv1.SweepSpec, n int32) error {
			set := spec.GetTuner().GetSuccessiveHalving()
			set.Trials = max(n, set.GetTrials())
			return nil
		},
		growth: func(t *outbidv1.Tuner) (rung, factor int64) {
			if set := t.GetSuccessiveHalving(); set.GetGrow() {
				return set.GetMinSteps(), int64(set.GetEta())
			}
			return 0, 0
		},
		rule: true, Traits: Traits{Rungs: Phases},
	}
}

func checkSuccessiveHalving(t *outbidv1.Tuner, _ *space.Space) error {
	set := t.GetSuccessiveHalving()
	if set.GetTrials() > 0 {
		return nil // then brackets checks that they are enough
	}
	return checkFirstRung("successive_halving", set.GetMaxSteps(), set.GetMinSteps(), int64(set.GetEta()))
}

func (successiveHalving) brackets(s Settings) ([]bracket, error) {
	set := s.withDefaults().GetSuccessiveHalving()
	eta := int64(set.GetEta())
	levels := risingLevels(set.GetMinSteps(), set.GetMaxSteps(), eta)
	least := power(eta, len(levels)-1)
	n := int64(set.GetTrials())
	if n == 0 {
		n = least
	}
	if err := enough(n, least, len(levels), s.Spec); err != nil {
		return nil, err
	}
	return []bracket{newBracket(0, int(n), eta, levels)}, nil
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

// added returns the trials that the new settings ask for in addition to the old ones.
func (d successiveHalving) added(old, now Settings) ([]bracket, error) {
	was, err := d.brackets(old)
	if err != nil {
		return nil, err
	}
	is, err := d.brackets(now)
	if err != nil {
		return nil, err
	}
	is[0].Full -= was[0].Full
	if is[0].Full <= 0 {
		return nil, nil
	}
	return is, nil
}
