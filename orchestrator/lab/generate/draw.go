package generate

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"

	"github.com/outbid-dev/outbid/orchestrator/trace"
)

// draw is one stream of random numbers. Every purpose has a separate stream, so that an additional draw for one of them
// does not change the others.
type draw struct{ *rand.Rand }

func newDraw(seed uint64, purpose string) draw {
	h := fnv.New64a()
	h.Write([]byte(purpose))
	return draw{rand.New(rand.NewPCG(seed, h.Sum64()))}
}

// between returns a uniform number in [low, high).
func (d draw) between(low, high float64) float64 { return low + float64(d.Float64()*(high-low)) }

// whole returns a uniform integer from low to high.
func (d draw) whole(low, high int) int { return low + d.IntN(high-low+1) }

// lognormal returns a log-normal number with a median and the standard deviation of its logarithm.
func (d draw) lognormal(median, sigma float64) float64 {
	return median * math.Exp(sigma*d.NormFloat64())
}

// Choice is a number of GPUs and its frequency, relative to the other choices in a list.
type Choice struct {
	GPUs  int
	Share float64
}

// choose draws from a list.
func (d draw) choose(from []Choice) int {
	total := 0.0
	for _, c := range from {
		total += c.Share
	}
	at := d.Float64() * total
	for _, c := range from {
		if at -= c.Share; at < 0 {
			return c.GPUs
		}
	}
	return from[len(from)-1].GPUs
}

func checkChoices(field string, from []Choice) error {
	total := 0.0
	for _, c := range from {
		if c.GPUs < 1 || c.GPUs > trace.MaxGPUs || !(c.Share >= 0) {
			return fmt.Errorf("%s: %d GPUs with share %g: want at least 1 GPU and a share of 0 or more", field, c.GPUs, c.Share)
		}
		total += c.Share
	}
	if !(total > 0) || math.IsInf(total, 0) {
		return fmt.Errorf("%s: the shares add up to %g: want more than 0", field, total)
	}
	return nil
}

// positive returns an error for the first setting that is not above 0.
func positive(maker string, settings ...setting) error {
	for _, s := range settings {
		if !trace.Finite(s.value) || s.value <= 0 {
			return fmt.Errorf("%s: %s is %g: want more than 0", maker, s.name, s.value)
		}
	}
	return nil
}

type setting struct {
	name  string
	value float64
}

// lossCurve draws a job's loss curve: every job of an app starts at the same loss, but has a different end and speed.
func (d draw) lossCurve(steps int64) *trace.Curve {
	return &trace.Curve{
		Start: 2.5,
		Floor: d.between(.1, 1),
		Scale: math.Max(1, float64(steps)*d.between(.005, .05)),
		Power: d.between(.5, 1.5),
	}
}
