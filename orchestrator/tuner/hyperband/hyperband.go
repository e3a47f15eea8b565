// Package hyperband follows algorithm 1 of Li, Jamieson, DeSalvo, Rostamizadeh and Talwalkar, "Hyperband: A Novel
// Bandit-Based Approach to Hyperparameter Optimization" (JMLR 18(185), 2018). With R counted in units of min_steps:
//
//	s_max = floor(log_eta(R)), B = (s_max+1) R
//	for s = s_max .. 0:  n = ceil(B/R * eta^s/(s+1)),  r = R eta^-s
//	  for i = 0 .. s:    n_i = floor(n eta^-i) trials until r_i = r eta^i; the best floor(n_i/eta) continue
//
// For R = 81 and eta = 3 that gives n = 81, 34, 15, 8, 5. Table 1 of the paper prints 81, 27, 9, 6, 5 instead, which
// follows from floor((s_max+1)/(s+1)) * eta^s. This implementation uses the algorithm. Logarithm, ceiling and floors
// are computed in integers; r_i is rounded down to whole steps.
//
// The trial limit cuts the plan. Brackets are filled in order. The bracket in which the limit falls runs with the
// remaining trials (its rungs shrink accordingly, and no trial continues from a rung of fewer than eta), and later
// brackets do not run. The outlook shows the plan after the cut. An extension to more steps adds rungs above every
// bracket: of the trials that completed the last rung, the best 1/eta, and at least one, continue. Further iterations
// use the new R.
package hyperband

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/engine"
	"github.com/outbid-dev/outbid/orchestrator/tuner/halving"
	"github.com/outbid-dev/outbid/orchestrator/tuner/ladder"
	"github.com/outbid-dev/outbid/orchestrator/tuner/saturate"
	"github.com/outbid-dev/outbid/orchestrator/tuner/space"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// design makes the brackets.
type design struct{}

// Kind describes the tuner to the registry.
func Kind() *engine.Kind {
	return &engine.Kind{
		Name:  "hyperband",
		Fresh: func(c *engine.Core) (engine.Rules, error) { return halving.Start(c, design{}) },
		Bare:  func(c *engine.Core) (engine.Rules, error) { return halving.Bare(c, design{}), nil },
		Check: func(t *outbidv1.Tuner, _ *space.Space) error {
			set := t.GetHyperband()
			return halving.CheckFirstRung("hyperband", set.GetMaxSteps(), set.GetMinSteps(), int64(set.GetEta()))
		},
		Raise: raise, Rule: true, Traits: tuner.Traits{Rungs: tuner.BracketRungs},
	}
}

// raise sets as many iterations as n trials need.
func raise(spec *outbidv1.SweepSpec, n int32) error {
	one := proto.CloneOf(spec)
	one.GetTuner().GetHyperband().Iterations = 1
	each, err := Kind().PlannedTrials(one)
	if err != nil {
		return err
	}
	set := spec.GetTuner().GetHyperband()
	set.Iterations = max(set.GetIterations(), (n+each-1)/each)
	return nil
}

func (d design) Brackets(s tuner.Settings) ([]halving.Bracket, error) {
	return d.sets(s, d.iterations(s))
}

// sets returns n runs of all brackets.
func (design) sets(s tuner.Settings, n int) ([]halving.Bracket, error) {
	set := s.WithDefaults().GetHyperband()
	low, eta := set.GetMinSteps(), int64(set.GetEta())
	smax := ladder.LogFloor(low, set.GetMaxSteps(), eta)
	var one []halving.Bracket
	total := int64(0)
	for s := smax; s >= 0; s-- {
		n := ladder.BracketTrials(smax, s, eta)
		total = saturate.Plus(total, n)
		levels := make([]int64, s+1)
		for i := range levels {
			levels[i] = set.GetMaxSteps() / saturate.Power(eta, s-i)
		}
		one = append(one, halving.NewBracket(s, int(min(n, ladder.MaxTrials)), eta, levels))
	}
	if s.Spec.GetLimits().GetTrials() == 0 && saturate.Times(total, int64(n)) > ladder.MaxTrials {
		return nil, fmt.Errorf("tuner.hyperband.min_steps: %d brackets make %d trials, the most is %d; raise min_steps "+
			"or eta, or set limits.trials", smax+1, saturate.Times(total, int64(n)), ladder.MaxTrials)
	}
	if n > ladder.MaxTrials/len(one) {
		return nil, fmt.Errorf("tuner.hyperband.iterations: %d iterations need more than the maximum of %d trials; use fewer", n, ladder.MaxTrials)
	}
	all := make([]halving.Bracket, 0, n*len(one))
	for range n {
		for _, b := range one {
			b.Rungs = slices.Clone(b.Rungs)
			all = append(all, b)
		}
	}
	return all, nil
}

func (design) iterations(s tuner.Settings) int {
	return int(s.WithDefaults().GetHyperband().GetIterations())
}

func (d design) Added(old, now tuner.Settings) ([]halving.Bracket, error) {
	return d.sets(now, d.iterations(now)-d.iterations(old))
}
