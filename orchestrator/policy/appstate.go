package policy

import (
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/bidder"
	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/tuner/registry"
)

// AppState returns the current state of a sweep for its bidder. It depends on its arguments alone. stock is the view's
// Stock, which is the same for all sweeps. holdings returns the devices that a trial keeps whatever is decided and
// those whose lease has expired; use Holding to build both.
func (v *View) AppState(a *App, stock []bidder.Stock, holdings func(*Job) (held, lost bidder.Holding)) *bidder.AppState {
	s := &bidder.AppState{
		App: a.ID, Tuner: a.Tuner, Weight: v.ShareOf(a), Elapsed: v.Now.Sub(a.Submitted).Seconds(), MeanApps: v.MeanApps(a),
		Cluster: stock, Demand: a.Demand, Speeds: a.Speeds, TotalSteps: float64(a.TotalSteps),
		Forks: a.Forks, LeastForks: a.LeastForks, Concurrency: int(a.Spec.GetLimits().GetConcurrency()), StepsDone: float64(a.StepsDone), Finished: a.Finished, Outlook: a.Outlook(),
		Jobs: make([]bidder.Job, 0, len(a.Jobs)),
	}
	if spec := a.Spec.GetAgent(); spec.GetPlugin() != "" {
		s.Bidder, s.Settings = spec.GetPlugin(), spec.GetSettings()
	}
	unreported, forecasts := 0.0, registry.TraitsOf(a.Tuner).Forecasts
	for _, j := range a.Jobs {
		step := v.StepAt(j)
		unreported += step - float64(j.Step)
		job := bidder.Job{
			Trial: j.Trial, Done: step, Until: float64(j.UntilStep), Total: float64(j.TotalSteps),
			Min: j.Demand.Min, Max: j.Demand.Max, MultiNode: j.Demand.MultiNode, Types: j.Demand.Types,
			Exclude: j.Demand.Exclude, Speeds: j.Speeds, Forks: j.Forks, LeastForks: j.LeastForks,
		}
		if forecasts {
			job.Forecast = max(job.Total, job.Until)
		}
		job.Held, job.Lost = holdings(j)
		job.Leaving = j.Ending && job.Lost.Devices == 0
		s.Jobs = append(s.Jobs, job)
	}
	s.StepsDone += unreported
	return s
}

// Holding describes a trial's gangs to its bidder. If the trial is forked, gangs has one gang per fork and Rate is the
// sum of their rates.
func (v *View) Holding(j *Job, gangs ...cluster.Gang) bidder.Holding {
	h, all := bidder.Holding{}, gangs[0]
	if len(gangs) > 1 {
		all = slices.Concat(gangs...)
	}
	h.Type, h.Devices, h.Machines = cluster.TypeOf(v.Nodes, all), all.Size(), len(all)
	for _, g := range gangs {
		h.Rate += v.Rate(j, g)
	}
	return h
}

// Stock counts the cluster's devices by type.
func (v *View) Stock() []bidder.Stock {
	inventory := v.Inventory()
	stock := make([]bidder.Stock, 0, len(inventory.Types()))
	for k, kind := range inventory.Types() {
		stock = append(stock, bidder.Stock{Type: kind, Devices: inventory.Total(k), Machines: inventory.machines[k]})
	}
	return stock
}
