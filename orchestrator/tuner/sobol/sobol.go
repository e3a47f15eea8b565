// Package sobol is quasi-random search: the points of Sobol, "On the distribution of points in a cube and the
// approximate evaluation of integrals" (1967), with the direction numbers of Joe and Kuo (2008), Owen-scrambled
// (package sample). Each trial is trained to the end.
package sobol

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
		Name:  "sobol",
		Fresh: func(c *engine.Core) (engine.Rules, error) { return singlestage.New(c, "Sobol point"), nil },
		Sampler: func(t *outbidv1.Tuner, s *space.Space) (sample.Sampler, error) {
			return sample.NewSobol(s, t.GetSeed()), nil
		},
		Traits: tuner.Traits{Endless: true, Independent: true},
	}
}
