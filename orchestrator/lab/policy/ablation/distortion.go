package ablation

import (
	"hash/fnv"
	"math/rand/v2"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/bidder"
)

// distortion distorts what sweeps know and report, to see the effect on a mechanism (figures 17 and 18 of Themis). It
// implements themis.Distortion.
type distortion struct {
	// errors is the largest relative error of estimates, liars the fraction of sweeps that over-report their slowdowns,
	// and lie by how much they do.
	errors, liars, lie float64
}

// chance returns a sweep's random numbers, which are the same in every round.
func chance(seed uint64, sweep string) *rand.Rand {
	h := fnv.New64a()
	h.Write([]byte(sweep))
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}

// Work distorts a sweep's estimate of its work.
func (d *distortion) Work(seed uint64, state *bidder.AppState) {
	if d.errors == 0 {
		return
	}
	off := 1 + d.errors*(2*chance(seed, state.App).Float64()-1)
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
func Lies(seed uint64, sweep string, part float64) bool {
	draw := chance(seed, sweep)
	draw.Float64()
	draw.Float64()
	return draw.Float64() < part
}

// Table distorts a sweep's slowdowns.
func (d *distortion) Table(seed uint64, sweep string, t *bidder.Table) {
	if d.errors == 0 && (d.liars == 0 || d.lie == 0) {
		return
	}
	draw := chance(seed, sweep)
	draw.Float64()
	factor := 1 + d.errors*(2*draw.Float64()-1)
	if Lies(seed, sweep, d.liars) {
		factor *= 1 + d.lie
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
