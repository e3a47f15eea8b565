package tuner

import (
	"github.com/outbid-dev/outbid/orchestrator/tuner/sample"
	"github.com/outbid-dev/outbid/orchestrator/tuner/space"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// gridKind is grid search: every combination of the parameters' values that meets the constraints, once, each trained
// to the end. The product of the value sets is the definition of Bergstra and Bengio, "Random Search for
// Hyper-Parameter Optimization" (JMLR 13, 2012), section 1.
func gridKind() *kind {
	return &kind{
		name:  "grid",
		fresh: newGrid,
		sampler: func(t *outbidv1.Tuner, s *space.Space) (sample.Sampler, error) {
			return sample.NewGrid(s, int(t.GetGrid().GetPoints()))
		},
		Traits: Traits{Independent: true},
	}
}

func newGrid(c *core) (rules, error) {
	f := newSingleStage(c, "grid point")
	f.total = func() (int, error) {
		if g, ok := c.configs.sampler.(*sample.Grid); ok {
			n, err := g.Total()
			return n + len(c.configs.points), err
		}
		return 0, nil
	}
	return f, nil
}
