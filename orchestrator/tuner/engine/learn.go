package engine

import (
	"math"

	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/sample"
)

// observe records a report in the trials' curves.
func (c *Core) observe(t tuner.Trial, step int64, metric float64, metrics map[string]float64) {
	c.Passed = false
	if c.Curves == nil {
		return
	}
	if _, given := metrics[c.Spec.GetMetric()]; given || !math.IsNaN(metric) {
		c.Passed = c.Curves.Report(int(t), step, c.Cost(metric))
	}
}

// teach gives a sampler that learns the expected final costs of trials that were stopped or wait. Without it,
// such a trial would count with its cost at an early step, or not at all.
func (c *Core) teach() {
	l, learns := c.Configs.Sampler.(sample.Learner)
	if !learns || c.Curves == nil {
		return
	}
	forecast := c.Curves.Forecaster()
	for t := c.Curves.First(); t < len(c.Curves.Trials); t++ {
		if phase := c.Trials[t].Phase; phase != Stopped && phase != Paused && phase != Ready {
			continue
		}
		if cost, known := forecast.Of(t); known {
			l.Told(t, cost)
		}
	}
}

// reopenCurves marks the trials that continue after an extension to more steps as not whole.
func (c *Core) reopenCurves() {
	if c.Curves == nil {
		return
	}
	for t := range c.Curves.Trials {
		if c.Trials[t].Phase == Ready || c.Trials[t].Phase == Paused {
			c.Curves.SetWhole(t, false)
		}
	}
}
