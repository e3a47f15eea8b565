package themis

import (
	"hash/fnv"
	"math/rand/v2"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/agent"
)

// study distorts what sweeps know and report, to see the effect on a mechanism (figures 17 and 18).
type study struct {
	seed uint64
	// errors is the largest relative error of estimates, liars the fraction of sweeps that over-report their slowdowns,
	// and lie by how much they do.
	errors, liars, lie float64
}

// chance returns a sweep's random numbers, which are the same in every round.
func (s *study) chance(app string) *rand.Rand {
	h := fnv.New64a()
	h.Write([]byte(app))
	return rand.New(rand.NewPCG(s.seed, h.Sum64()))
}

// distortWork distorts a sweep's estimate of its work.
func (s *study) distortWork(state *agent.AppState) {
	if s.errors == 0 {
		return
	}
	off := 1 + s.errors*(2*s.chance(state.App).Float64()-1)
	for i := range state.Jobs {
		j := &state.Jobs[i]
		j.Until, j.Total = j.Done+max(0, j.Until-j.Done)*off, j.Done+max(0, j.Total-j.Done)*off
	}
	if state.Outlook.Steps > 0 {
		state.Outlook.Steps = int64(state.StepsDone + (float64(state.Outlook.Steps)-state.StepsDone)*off)
	}
}

// Lies reports whether a sweep lies if this fraction of the sweeps does. A sweep that lies at a fraction also lies at
// every larger one.
func Lies(seed uint64, app string, part float64) bool {
	draw := (&study{seed: seed}).chance(app)
	draw.Float64()
	draw.Float64()
	return draw.Float64() < part
}

// distortTable distorts a sweep's slowdowns.
func (s *study) distortTable(app string, t *agent.Table) {
	if s.errors == 0 && (s.liars == 0 || s.lie == 0) {
		return
	}
	draw := s.chance(app)
	draw.Float64()
	factor := 1 + s.errors*(2*draw.Float64()-1)
	if Lies(s.seed, app, s.liars) {
		factor *= 1 + s.lie
	}
	t.Rows = slices.Clone(t.Rows)
	for i := range t.Rows {
		for _, g := range t.Rows[i].Gangs {
			if g.Machines > 1 {
				t.Rows[i].Rho *= factor
				break
			}
		}
	}
}
