// Package grid is grid search: every combination of the parameters' values that meets the constraints, once, each
// trained to the end. The product of the value sets is the definition of Bergstra and Bengio, "Random Search for
// Hyper-Parameter Optimization" (JMLR 13, 2012), section 1.
package grid

import (
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
		Name:  "grid",
		Fresh: newGrid,
		Sampler: func(t *outbidv1.Tuner, s *space.Space) (sample.Sampler, error) {
			return sample.NewGrid(s, int(t.GetGrid().GetPoints()))
		},
		Traits: tuner.Traits{Independent: true},
	}
}

func newGrid(c *engine.Core) (engine.Rules, error) {
	f := singlestage.New(c, "grid point")
	f.Total = func() (int, error) {
		if g, ok := c.Configs.Sampler.(*sample.Grid); ok {
			n, err := g.Total()
			return n + len(c.Configs.Points), err
		}
		return 0, nil
	}
	return f, nil
}
