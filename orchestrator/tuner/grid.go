package tuner

import "github.com/outbid-dev/outbid/orchestrator/tuner/sample"

// newGrid returns grid search: every combination of the parameters' values that meets the constraints, once, each
// trained to the end. The product of the value sets is the definition of Bergstra and Bengio, "Random Search for
// Hyper-Parameter Optimization" (JMLR 13, 2012), section 1.
func newGrid(c *core) (rules, error) {
	f, err := newSingleStage(c, "grid point")
	if err != nil {
		return nil, err
	}
	f.total = func() (int, error) {
		if g, ok := c.configs.sampler.(*sample.Grid); ok {
			n, err := g.Total()
			return n + len(c.configs.points), err
		}
		return 0, nil
	}
	return f, nil
}
