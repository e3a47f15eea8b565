// Package sample draws configurations from a search space: at random, along a Sobol sequence, over a grid, or by
// Bayesian optimisation.
//
// A Sampler is deterministic: restored from a snapshot, it continues with the same configurations. Samplers meet the
// constraints by redrawing.
package sample

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/outbid-dev/outbid/orchestrator/tuner/space"
)

// Config is a configuration.
type Config = space.Config

// A Sampler draws a sequence of configurations.
type Sampler interface {
	// Next draws a configuration that meets the constraints. It returns false if none is left, and an error if it finds
	// none because the constraints leave too little of the space.
	Next() (Config, bool, error)
	// Widen makes Next draw from a wider space. A grid does not repeat configurations that it drew before.
	Widen(*space.Space) error
	// Snapshot returns the whole state except the space. Restore returns a sampler in this state.
	Snapshot() ([]byte, error)
}

// ErrBadSnapshot is returned by Restore for bytes that are not a snapshot of a sampler.
var ErrBadSnapshot = errors.New("not a snapshot of a sampler")

// maxTries is the maximum number of draws for one configuration that meets the constraints.
const maxTries = 10_000

const (
	// BayesName is the name of the sampler that learns from the trials' costs.
	BayesName = "bayes"
	// MostParameters is the maximum number of parameters for it. Its model learns little beyond a few dozen, and the time
	// of a proposal, which all tenants wait for, grows with them: 15 ms at 100 parameters, 0.2 s at 1,000.
	MostParameters = 64
)

// New returns the sampler with a name, "random", "sobol" or "bayes"; "" means random. The same seed draws the same
// configurations.
func New(name string, s *space.Space, seed uint64) (Sampler, error) {
	switch name {
	case "", "random":
		return NewRandom(s, seed), nil
	case "sobol":
		return NewSobol(s, seed), nil
	case BayesName:
		return NewBayes(s, seed), nil
	default:
		return nil, fmt.Errorf("sampler: %q is unknown; use random, sobol or bayes", name)
	}
}

// state is the snapshot of any sampler.
type state struct {
	Kind string `json:"kind"`
	// Rng is the generator of Random.
	Rng []byte `json:"rng,omitempty"`
	// Seed is the seed of Sobol and Bayes.
	Seed uint64 `json:"seed,omitempty"`
	// Next is the index of the next point of a Sobol sequence or grid.
	Next uint64 `json:"next,omitempty"`
	// Points, Drawn and Seen belong to Grid.
	Points int      `json:"points,omitempty"`
	Drawn  int      `json:"drawn,omitempty"`
	Seen   []uint64 `json:"seen,omitempty"`
	// Learnt is the state of Bayes.
	Learnt []byte `json:"learnt,omitempty"`
}

// Restore returns a sampler in the state of a snapshot. s must be the space that it had when the snapshot was taken.
func Restore(s *space.Space, snapshot []byte) (Sampler, error) {
	var st state
	if err := json.Unmarshal(snapshot, &st); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadSnapshot, err)
	}
	switch st.Kind {
	case "random":
		r := NewRandom(s, 0)
		if err := r.pcg.UnmarshalBinary(st.Rng); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrBadSnapshot, err)
		}
		return r, nil
	case "sobol":
		q := NewSobol(s, st.Seed)
		q.next = st.Next
		return q, nil
	case "grid":
		return restoreGrid(s, st)
	case "bayes":
		return restoreBayes(s, st)
	default:
		return nil, fmt.Errorf("%w: unknown kind %q", ErrBadSnapshot, st.Kind)
	}
}

// Random draws independent configurations.
type Random struct {
	space *space.Space
	pcg   *rand.PCG
	rng   *rand.Rand
}

var _ Sampler = (*Random)(nil)

// stream separates the samplers' randomness from other uses of a sweep's seed.
const stream = 0x73616d706c65

// NewRandom returns a random sampler.
func NewRandom(s *space.Space, seed uint64) *Random {
	pcg := rand.NewPCG(seed, stream)
	return &Random{space: s, pcg: pcg, rng: rand.New(pcg)}
}

// Next draws a configuration.
func (r *Random) Next() (Config, bool, error) {
	u := make([]float64, r.space.Dims())
	return draw(r.space, func() ([]float64, error) {
		for i := range u {
			u[i] = r.rng.Float64()
		}
		return u, nil
	})
}

// draw converts points into configurations until one meets the constraints.
func draw(s *space.Space, point func() ([]float64, error)) (Config, bool, error) {
	violated := ""
	for range maxTries {
		u, err := point()
		if err != nil {
			return nil, false, err
		}
		cfg := s.At(u)
		if violated = s.Violated(cfg); violated == "" {
			return cfg, true, nil
		}
	}
	return nil, false, fmt.Errorf("constraints: none of %d random configurations meets all of them (the last one breaks %q); "+
		"relax them so that they exclude less of the space", maxTries, violated)
}

// Widen implements Sampler.
func (r *Random) Widen(s *space.Space) error {
	r.space = s
	return nil
}

// Snapshot returns the state of the generator.
func (r *Random) Snapshot() ([]byte, error) {
	rng, err := r.pcg.MarshalBinary()
	if err != nil {
		return nil, fmt.Errorf("snapshot of the random sampler: %w", err)
	}
	return json.Marshal(state{Kind: "random", Rng: rng})
}
