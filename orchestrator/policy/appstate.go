package policy

import (
	"github.com/outbid-dev/outbid/orchestrator/agent"
	"github.com/outbid-dev/outbid/orchestrator/cluster"
)

// AppState is an app as it stands, as its agent is told. It depends on its arguments alone. stock is the view's
// Stock, which is the same for all apps. holdings says which devices a job keeps whatever is decided, and which it holds
// on a lease that is up; Holding makes them.
func (v *View) AppState(a *App, stock []agent.Stock, holdings func(*Job) (held, lost agent.Holding)) *agent.AppState {
	s := &agent.AppState{
		App: a.ID, Tuner: a.Tuner, Weight: v.ShareOf(a), Elapsed: v.Now.Sub(a.Submitted).Seconds(), MeanApps: v.MeanApps(a),
		Cluster: stock, Demand: a.Demand, Speeds: a.Speeds, TotalSteps: float64(a.TotalSteps),
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
			Min: j.Demand.Min, Max: j.Demand.Max, MultiNode: j.Demand.MultiNode, Types: j.Demand.Types,
			Exclude: j.Demand.Exclude, Speeds: j.Speeds, Leaving: j.Ending,
		}
		if a.Tuner == "performance_curve" {
			job.Forecast = max(job.Total, job.Until)
		}
		job.Held, job.Lost = holdings(j)
		s.Jobs = append(s.Jobs, job)
	}
	s.StepsDone += unreported
	return s
}

// Holding is a gang as a job's agent is told of it.
func (v *View) Holding(j *Job, g cluster.Gang) agent.Holding {
	return agent.Holding{Type: cluster.TypeOf(v.Nodes, g), Devices: g.Size(), Machines: len(g), Rate: v.Rate(j, g)}
}

// Stock counts the cluster's devices by type.
func (v *View) Stock() []agent.Stock {
	inventory := v.Inventory()
	stock := make([]agent.Stock, 0, len(inventory.Types()))
	for k, kind := range inventory.Types() {
		stock = append(stock, agent.Stock{Type: kind, Devices: inventory.Total(k)})
	}
	return stock
}
