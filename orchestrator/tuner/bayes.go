package tuner

import (
	"fmt"

	"github.com/outbid-dev/outbid/orchestrator/tuner/sample"
	"github.com/outbid-dev/outbid/orchestrator/tuner/space"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// BayesMaxParameters is the largest number of parameters for Bayesian search. Its model learns little beyond a few
// dozen, and the time of a choice, which all tenants wait for, grows with it: 15 ms at 100 parameters, 0.2 s at 1,000.
const BayesMaxParameters = 64

// bayesKind is Bayesian optimisation: a Gaussian process of all earlier trials proposes each configuration (package
// surrogate). Each trial is trained to the end.
func bayesKind() *kind {
	return &kind{
		name:  "bayes",
		fresh: func(c *core) (rules, error) { return newSingleStage(c, "Bayesian choice"), nil },
		check: func(_ *outbidv1.Tuner, s *space.Space) error {
			if n := s.Dims(); n > BayesMaxParameters {
				return fmt.Errorf("tuner.bayes: at most %d parameters are allowed, got %d; random and sobol take any number", BayesMaxParameters, n)
			}
			return nil
		},
		sampler: func(t *outbidv1.Tuner, s *space.Space) (sample.Sampler, error) {
			return sample.NewBayes(s, t.GetSeed()), nil
		},
		Traits: Traits{Endless: true},
	}
}
