package sample

import (
	"encoding/json"
	"errors"
	"math/bits"
	"math/rand/v2"

	"github.com/outbid-dev/outbid/orchestrator/tuner/space"
)

// Sobol draws along a Sobol sequence with the direction numbers of Joe and Kuo (2008) under a nested uniform (Owen)
// scramble, hashed as in Burley, "Practical Hash-based Owen Scrambling" (JCGT 2020), with the constants that Vegdahl
// found for it. The first 2^k configurations fill each dimension evenly, whatever the seed. Dimensions after the
// table's 256 are pseudorandom.
type Sobol struct {
	space *space.Space
	seed  uint64
	next  uint64
	// directions and scramble are indexed by dimension.
	directions [][sobolBits]uint32
	scramble   []uint32
}

var _ Sampler = (*Sobol)(nil)

const (
	// sobolBits is the resolution; the sequence has 2^sobolBits points.
	sobolBits = 32
	// scrambleStream separates the seeds of the scramble from other uses of a sweep's seed.
	scrambleStream = 0x736f626f6c
)

// NewSobol returns a Sobol sampler.
func NewSobol(s *space.Space, seed uint64) *Sobol {
	q := &Sobol{seed: seed}
	q.use(s)
	return q
}

func (q *Sobol) use(s *space.Space) {
	q.space = s
	q.directions = directions(min(s.Dims(), sobolDims))
	q.scramble = make([]uint32, len(q.directions))
	rng := rand.New(rand.NewPCG(q.seed, scrambleStream))
	for i := range q.scramble {
		q.scramble[i] = rng.Uint32()
	}
}

// Next returns the next configuration of the sequence that meets the constraints.
func (q *Sobol) Next() (Config, bool, error) {
	u := make([]float64, q.space.Dims())
	return draw(q.space, func() ([]float64, error) {
		if q.next >= 1<<sobolBits {
			return nil, errors.New("sampler: the Sobol sequence has no more than 2^32 points; use the random sampler")
		}
		q.point(uint32(q.next), u)
		q.next++
		return u, nil
	})
}

// point writes the n-th scrambled point into u.
func (q *Sobol) point(n uint32, u []float64) {
	for d := range u {
		if d < len(q.directions) {
			u[d] = unit(owen(sobol(&q.directions[d], n), q.scramble[d]))
			continue
		}
		u[d] = rand.New(rand.NewPCG(q.seed^scrambleStream, uint64(d)<<sobolBits|uint64(n))).Float64()
	}
}

func unit(x uint32) float64 { return float64(x) / (1 << sobolBits) }

// sobol returns coordinate n of the unscrambled sequence in Gray code order (Antonov and Saleev 1979), the order of
// published tables.
func sobol(v *[sobolBits]uint32, n uint32) uint32 {
	var x uint32
	for gray := n ^ n>>1; gray != 0; gray &= gray - 1 {
		x ^= v[bits.TrailingZeros32(gray)]
	}
	return x
}

// owen permutes x so that every bit depends on itself and the bits above it, which keeps the sequence evenly
// distributed.
func owen(x, seed uint32) uint32 {
	x = bits.Reverse32(x)
	x ^= x * 0x3d20adea
	x += seed
	x *= seed>>16 | 1
	x ^= x * 0x05526c56
	x ^= x * 0x53a22864
	return bits.Reverse32(x)
}

// Widen makes Next draw from a wider space, at later points of the same sequence.
func (q *Sobol) Widen(s *space.Space) error {
	q.use(s)
	return nil
}

// Snapshot returns the position in the sequence.
func (q *Sobol) Snapshot() ([]byte, error) {
	return json.Marshal(state{Kind: "sobol", Seed: q.seed, Next: q.next})
}
