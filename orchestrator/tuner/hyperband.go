package tuner

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/outbid-dev/outbid/orchestrator/tuner/space"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// hyperband follows algorithm 1 of Li, Jamieson, DeSalvo, Rostamizadeh and Talwalkar, "Hyperband: A Novel Bandit-Based
// Approach to Hyperparameter Optimization" (JMLR 18(185), 2018). With R counted in units of min_steps:
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
type hyperband struct{}

func hyperbandKind() *kind {
	return &kind{
		name:  "hyperband",
		fresh: func(c *core) (rules, error) { return startHalving(c, hyperband{}) },
		bare:  func(c *core) (rules, error) { return bareHalving(c, hyperband{}), nil },
		check: func(t *outbidv1.Tuner, _ *space.Space) error {
			set := t.GetHyperband()
			return checkFirstRung("hyperband", set.GetMaxSteps(), set.GetMinSteps(), int64(set.GetEta()))
		},
		raise: raiseHyperband, rule: true, Traits: Traits{Rungs: BracketRungs},
	}
}

// raiseHyperband sets as many iterations as n trials need.
func raiseHyperband(spec *outbidv1.SweepSpec, n int32) error {
	one := proto.CloneOf(spec)
	one.GetTuner().GetHyperband().Iterations = 1
	each, err := hyperbandKind().plannedTrials(one)
	if err != nil {
		return err
	}
	set := spec.GetTuner().GetHyperband()
	set.Iterations = max(set.GetIterations(), (n+each-1)/each)
	return nil
}

func (d hyperband) brackets(s Settings) ([]bracket, error) {
	return d.sets(s, d.iterations(s))
}

// sets returns n runs of all brackets.
func (hyperband) sets(s Settings, n int) ([]bracket, error) {
	set := s.withDefaults().GetHyperband()
	low, eta := set.GetMinSteps(), int64(set.GetEta())
	smax := logFloor(low, set.GetMaxSteps(), eta)
	var one []bracket
	total := int64(0)
	for s := smax; s >= 0; s-- {
		n := hyperbandTrials(smax, s, eta)
		total = plus(total, n)
		levels := make([]int64, s+1)
		for i := range levels {
			levels[i] = set.GetMaxSteps() / power(eta, s-i)
		}
		one = append(one, newBracket(s, int(min(n, maxTrials)), eta, levels))
	}
	if s.Spec.GetLimits().GetTrials() == 0 && times(total, int64(n)) > maxTrials {
		return nil, fmt.Errorf("tuner.hyperband.min_steps: %d brackets make %d trials, the most is %d; raise min_steps "+
			"or eta, or set limits.trials", smax+1, times(total, int64(n)), maxTrials)
	}
	if n > maxTrials/len(one) {
		return nil, fmt.Errorf("tuner.hyperband.iterations: %d iterations need more than the maximum of %d trials; use fewer", n, maxTrials)
	}
	all := make([]bracket, 0, n*len(one))
	for range n {
		for _, b := range one {
			b.Rungs = slices.Clone(b.Rungs)
			all = append(all, b)
		}
	}
	return all, nil
}

func (hyperband) iterations(s Settings) int {
	return int(s.withDefaults().GetHyperband().GetIterations())
}

func (d hyperband) added(old, now Settings) ([]bracket, error) {
	return d.sets(now, d.iterations(now)-d.iterations(old))
}
