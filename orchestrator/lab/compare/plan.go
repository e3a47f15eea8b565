package compare

import (
	"errors"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/lab/papers"
	"github.com/outbid-dev/outbid/orchestrator/policy/registry"
	"github.com/outbid-dev/outbid/orchestrator/sim/experiment"
	"github.com/outbid-dev/outbid/orchestrator/sim/workload"
)

// Options are the options of an experiment and those that the lab adds. The cluster may be one of a paper.
type Options struct {
	experiment.Options

	// Made is the generator of the workload, if it has a name.
	Made papers.Workload
	// RestartDelayGiven is set if the user chose RestartDelay; otherwise Gavel's traces use 0.
	RestartDelayGiven bool
	// Alone also simulates every app alone on its share of the cluster.
	Alone bool
}

// NewPlan checks all options before anything runs. A problem with them is an experiment.InputError.
func NewPlan(o Options) (*experiment.Plan, error) {
	request, err := o.Made.Request(o.Workload)
	if err != nil {
		return nil, experiment.BadInput("the workload: %w", err)
	}
	o.Workload, o.Clusters = request, papers.Clusters()
	o.Adjust = func(p *experiment.Plan) error { return gavelRules(p, o.RestartDelayGiven) }
	if o.Alone {
		o.Compare = Alone
	}
	p, err := experiment.NewPlan(o.Options)
	if errors.Is(err, workload.ErrNothing) {
		return nil, experiment.BadInput("%w or --made NAME", err)
	}
	return p, err
}

// gavelRules makes a trace in Gavel's format with throughputs run as in Gavel's simulator, unless the user chose
// otherwise: a job whose devices change continues at once, and Gavel's policies count whole steps in each round.
func gavelRules(p *experiment.Plan, delayGiven bool) error {
	if p.Table == nil || p.Trace.Report.Format != "gavel trace" {
		return nil
	}
	if !delayGiven {
		p.RestartDelay = 0
	}
	factories, err := p.Options.Factories(gavelPreset(p.Registry, p.Round))
	if err != nil {
		return err
	}
	p.Factories = factories
	p.Note("by the rules of Gavel's simulator, as the trace is one of Gavel's: a restart takes %s, its policies count whole steps, fifo is its own",
		p.RestartDelay)
	return nil
}

// gavelPreset makes Gavel's policies count whole steps, and fifo behave like Gavel's unless it has options.
func gavelPreset(from registry.Registry, round time.Duration) experiment.Preset {
	return func(name string, pairs []string) []string {
		pairs = experiment.UnlessGiven(from, pairs, name, "whole-steps", "true")
		if name != "fifo" || len(pairs) > 0 {
			return pairs
		}
		pairs = append(pairs, "rules=gavel", "whole-steps=true")
		if round > 0 {
			pairs = append(pairs, "round="+round.String())
		}
		return pairs
	}
}
