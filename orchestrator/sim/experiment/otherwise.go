package experiment

import (
	"context"
	"fmt"
	"slices"

	"github.com/outbid-dev/outbid/orchestrator/explain"
	"github.com/outbid-dev/outbid/orchestrator/ledger"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/registry"
	"github.com/outbid-dev/outbid/orchestrator/sim"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// doubled is the factor of the weight that Otherwise tries.
const doubled = 2

// Otherwise simulates a ledger's sweeps under its own policy, with twice the weight of one sweep, and under other
// policies. It returns when that sweep ends in each simulation; those in which it does not end are left out. The result
// is nil if the ledger has no speed of the sweep, so that a simulation would say nothing about it. from has the policies
// that there are.
func Otherwise(ctx context.Context, from registry.Registry, l ledger.Ledger, sweep string, others []string) ([]explain.Outcome, error) {
	again, err := NewRerun(ctx, from, l, others, nil)
	if err != nil {
		return nil, err
	}
	if i := slices.IndexFunc(again.recording.Apps, func(a sim.App) bool { return isReplay(a.Spec, sweep) }); i < 0 || !hasSpeeds(&again.recording.Apps[i]) {
		return nil, nil
	}
	var outcomes []explain.Outcome
	for _, f := range again.factories {
		factors := []float64{1}
		if f.Name == again.recording.Policy {
			factors = append(factors, doubled)
		}
		for _, factor := range factors {
			o, ended, err := again.outcome(ctx, f, sweep, factor)
			if err != nil {
				return nil, err
			}
			if ended {
				outcomes = append(outcomes, o)
			}
		}
	}
	return outcomes, nil
}

// outcome simulates the recording under a policy, with a multiple of a sweep's weight.
func (r *Rerun) outcome(ctx context.Context, f PolicyFactory, sweep string, factor float64) (o explain.Outcome, ended bool, err error) {
	p, err := f.New()
	if err != nil {
		return o, false, err
	}
	set := r.recording.Setup(p)
	set.Policy, set.Control = func() policy.Policy { return p }, settings()
	set.Apps = slices.Clone(set.Apps)
	for i, a := range set.Apps {
		if isReplay(a.Spec, sweep) && factor != 1 {
			set.Apps[i] = a.Weighing(policy.WeightOrOne(a.Spec.GetWeight()) * factor)
		}
	}
	got, err := sim.Run(ctx, set)
	if err != nil {
		return o, false, fmt.Errorf("policy %s: %w", f.Name, err)
	}
	for _, s := range got.State.Sweeps {
		if isReplay(s.Spec, sweep) && s.Done() {
			return explain.Outcome{Policy: f.Name, Factor: factor, Seconds: s.Ended.Sub(s.Submitted).Seconds()}, true, nil
		}
	}
	return o, false, nil
}

// isReplay reports whether a spec is that of a sweep of the ledger.
func isReplay(spec *outbidv1.SweepSpec, sweep string) bool {
	return spec.GetLabels()["replayed"] == sweep
}

// hasSpeeds reports whether a speed of an app was measured or given.
func hasSpeeds(a *sim.App) bool {
	return slices.ContainsFunc(a.Jobs, func(j sim.Job) bool { return len(j.Speeds.Measured) > 0 })
}
