package themis

import (
	"hash/fnv"
	"math/rand/v2"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/agent"
	"github.com/outbid-dev/outbid/orchestrator/policy"
)

// situation is what an app's agent is told in this round.
func (r *round) situation(a *policy.App) *agent.Situation {
	s := r.v.Situation(a, r.stock(), r.holdings, r.p.Forecasts.End)
	r.err(s)
	return s
}

// holdings are what a job keeps, or was promised, and what it holds on a lease that is up.
func (r *round) holdings(j *policy.Job) (held, lost agent.Holding) {
	switch g, promised := r.kept[j]; {
	case promised:
		held = r.v.Holding(j, g)
	case j.Running() && r.lost[j]:
		lost = r.v.Holding(j, j.Gang)
	case j.Running() && !j.Ending:
		held = r.v.Holding(j, j.Gang)
	}
	return held, lost
}

// stock counts the cluster's devices by type, once a round.
func (r *round) stock() []agent.Stock {
	if r.all == nil {
		r.all = r.v.Stock()
	}
	return r.all
}

// chance is an app's own random numbers, the same in every round.
func (r *round) chance(app string) *rand.Rand {
	h := fnv.New64a()
	h.Write([]byte(app))
	return rand.New(rand.NewPCG(r.p.set.seed, h.Sum64()))
}

// err makes an app's estimate of its work wrong, if the options ask for it (figure 17).
func (r *round) err(s *agent.Situation) {
	if r.p.set.errors == 0 {
		return
	}
	off := 1 + r.p.set.errors*(2*r.chance(s.App).Float64()-1)
	for i := range s.Jobs {
		j := &s.Jobs[i]
		j.Until, j.Total = j.Done+max(0, j.Until-j.Done)*off, j.Done+max(0, j.Total-j.Done)*off
	}
	if s.Outlook.Steps > 0 {
		s.Outlook.Steps = int64(s.StepsDone + (float64(s.Outlook.Steps)-s.StepsDone)*off)
	}
}

// distort makes an app's slowdowns wrong, if the options ask for it (figures 17 and 18).
func (r *round) distort(app string, t *agent.Table) {
	if r.p.set.errors == 0 && (r.p.set.liars == 0 || r.p.set.lie == 0) {
		return
	}
	draw := r.chance(app)
	draw.Float64()
	factor := 1 + r.p.set.errors*(2*draw.Float64()-1)
	if draw.Float64() < r.p.set.liars {
		factor *= 1 + r.p.set.lie
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
