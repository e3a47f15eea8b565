package tuner

import (
	"github.com/outbid-dev/outbid/orchestrator/tuner/sample"
	"github.com/outbid-dev/outbid/orchestrator/tuner/space"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// sobolKind is quasi-random search: the points of Sobol, "On the distribution of points in a cube and the approximate
// evaluation of integrals" (1967), with the direction numbers of Joe and Kuo (2008), Owen-scrambled (package sample).
// Each trial is trained to the end.
func sobolKind() *kind {
	return &kind{
		name:  "sobol",
		fresh: func(c *core) (rules, error) { return newSingleStage(c, "Sobol point"), nil },
		sampler: func(t *outbidv1.Tuner, s *space.Space) (sample.Sampler, error) {
			return sample.NewSobol(s, t.GetSeed()), nil
		},
		Traits: Traits{Endless: true},
	}
}
