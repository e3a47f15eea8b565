package themis

import (
	"hash/fnv"
	"math/rand/v2"

	"github.com/outbid-dev/outbid/orchestrator/agent"
	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/policy"
)

// situation is what an app's agent is told.
func (r *round) situation(a *policy.App) *agent.Situation {
	v := r.v
	s := &agent.Situation{
		App: a.ID, Tuner: a.Tuner, Weight: a.Weight, Elapsed: v.Now.Sub(a.Submitted).Seconds(), MeanApps: v.MeanApps(a),
		Cluster: r.stock(), Demand: a.Demand, Speeds: a.Speeds, TotalSteps: float64(a.TotalSteps),
		StepsDone: float64(a.StepsDone), Finished: a.Finished, Outlook: a.Outlook(),
		Jobs: make([]agent.Job, 0, len(a.Jobs)),
	}
	if spec := a.Spec.GetAgent(); spec.GetPlugin() != "" {
		s.Agent, s.Settings = spec.GetPlugin(), spec.GetSettings()
	}
	unreported := 0.0
	for _, j := range a.Jobs {
		step := v.StepAt(j)
		unreported += step - float64(j.Step)
		job := agent.Job{
			Trial: j.Trial, Done: step, Until: float64(j.UntilStep), Total: float64(j.TotalSteps),
			Min: j.Demand.Min, Max: j.Demand.Max, Spread: j.Demand.Spread, Types: j.Demand.Types,
			Exclude: j.Demand.Exclude, Speeds: j.Speeds, Leaving: j.Ending,
		}
		if a.Tuner == "performance_curve" {
			job.Forecast = r.p.forecast(j)
		}
		switch g, promised := r.kept[j]; {
		case promised:
			job.Held = r.holding(j, g)
		case j.Running() && r.lost[j]:
			job.Lost = r.holding(j, j.Gang)
		case j.Running() && !j.Ending:
			job.Held = r.holding(j, j.Gang)
		}
		s.Jobs = append(s.Jobs, job)
	}
	s.StepsDone += unreported
	r.err(s)
	return s
}

func (r *round) holding(j *policy.Job, g cluster.Gang) agent.Holding {
	return agent.Holding{
		Type: cluster.TypeOf(r.v.Nodes, g), Devices: g.Size(), Machines: len(g), Rate: r.v.Rate(j, g),
	}
}

// stock counts the cluster's devices by type, once a round.
func (r *round) stock() []agent.Stock {
	if r.all == nil {
		shape := r.v.Shape()
		for k, kind := range shape.Types() {
			r.all = append(r.all, agent.Stock{Type: kind, Devices: shape.Total(k)})
		}
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
	for i := range t.Rows {
		for _, g := range t.Rows[i].Gangs {
			if g.Machines > 1 {
				t.Rows[i].Rho *= factor
				break
			}
		}
	}
}
