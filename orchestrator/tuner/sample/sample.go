// Package sample draws configurations from a search space: at random, along a Sobol sequence, or over a grid.
//
// A Sampler is a pure value with a snapshot: restored, it goes on with the same configurations. Samplers keep to the
// constraints by drawing again.
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

// A Sampler draws configurations, one after another.
type Sampler interface {
	// Next draws a configuration that meets the constraints; false means that there are no more. It is an error if
	// the constraints leave so little of the space that none is found.
	Next() (Config, bool, error)
	// Widen draws later configurations from a wider space. What was drawn stays drawn: a grid does not repeat it.
	Widen(*space.Space) error
	// Snapshot returns everything but the space. Restore goes on from it.
	Snapshot() ([]byte, error)
}

// ErrBadSnapshot is returned by Restore for bytes that are no snapshot of a sampler.
var ErrBadSnapshot = errors.New("not a snapshot of a sampler")

// maxTries bounds how often a sampler draws again when a configuration does not meet the constraints.
const maxTries = 10_000

// New makes the sampler of that name, "random" or "sobol"; "" is random. The same seed draws the same configurations.
func New(name string, s *space.Space, seed uint64) (Sampler, error) {
	switch name {
	case "", "random":
		return NewRandom(s, seed), nil
	case "sobol":
		return NewSobol(s, seed), nil
	default:
		return nil, fmt.Errorf("sampler: %q is unknown; use random or sobol", name)
	}
}

// state is the snapshot of any sampler.
type state struct {
	Kind string `json:"kind"`
	// Rng is random's generator.
	Rng []byte `json:"rng,omitempty"`
	// Seed is Sobol's.
	Seed uint64 `json:"seed,omitempty"`
	// Next is the number of the next point of a Sobol sequence or grid.
	Next uint64 `json:"next,omitempty"`
	// Points, Drawn and Seen are the grid's.
	Points int      `json:"points,omitempty"`
	Drawn  int      `json:"drawn,omitempty"`
	Seen   []uint64 `json:"seen,omitempty"`
	// Learnt is what the Bayesian sampler knows.
	Learnt []byte `json:"learnt,omitempty"`
}

// Restore goes on from a snapshot, over the space that the sampler had when it was taken.
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
		return nil, fmt.Errorf("%w: kind %q", ErrBadSnapshot, st.Kind)
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

// NewRandom makes a random sampler.
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

// draw turns points into configurations until one meets the constraints.
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
	return nil, false, fmt.Errorf("constraints: of %d configurations none meets them all (the last breaks %q); "+
		"they leave almost nothing of the space", maxTries, violated)
}

// Widen draws later configurations from a wider space.
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
