// Package bayes is Bayesian optimisation: a Gaussian process of all earlier trials proposes each configuration (package
// surrogate). Each trial is trained to the end. With several objectives the configurations spread along their Pareto
// front.
package bayes

import (
	"fmt"

	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/engine"
	"github.com/outbid-dev/outbid/orchestrator/tuner/sample"
	"github.com/outbid-dev/outbid/orchestrator/tuner/singlestage"
	"github.com/outbid-dev/outbid/orchestrator/tuner/space"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// Kind describes the tuner to the registry.
func Kind() *engine.Kind {
	return &engine.Kind{
		Name:  "bayes",
		Fresh: func(c *engine.Core) (engine.Rules, error) { return singlestage.New(c, "Bayesian choice"), nil },
		Check: func(_ *outbidv1.Tuner, s *space.Space) error {
			if n := s.Dims(); n > sample.MostParameters {
				return fmt.Errorf("tuner.bayes: at most %d parameters are allowed, got %d; random and sobol take any number", sample.MostParameters, n)
			}
			return nil
		},
		Sampler: func(t *outbidv1.Tuner, s *space.Space) (sample.Sampler, error) {
			return sample.NewBayes(s, t.GetSeed()), nil
		},
		Several: true,
		Traits:  tuner.Traits{Endless: true, Independent: true},
	}
}
