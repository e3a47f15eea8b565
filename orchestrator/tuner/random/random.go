// Package random is random search as in Bergstra and Bengio, "Random Search for Hyper-Parameter Optimization" (JMLR 13,
// 2012): independent draws from the space, each trained to the end.
package random

import (
	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/engine"
	"github.com/outbid-dev/outbid/orchestrator/tuner/singlestage"
)

// Kind describes the tuner to the registry.
func Kind() *engine.Kind {
	return &engine.Kind{
		Name:   "random",
		Fresh:  func(c *engine.Core) (engine.Rules, error) { return singlestage.New(c, "random draw"), nil },
		Rule:   true,
		Traits: tuner.Traits{Endless: true, Independent: true},
	}
}
