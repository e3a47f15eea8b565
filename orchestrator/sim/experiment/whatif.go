package experiment

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/outbid-dev/outbid/orchestrator/ledger"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/registry"
	"github.com/outbid-dev/outbid/orchestrator/sim"
	"github.com/outbid-dev/outbid/orchestrator/tuner"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// maxSimulatedSweeps is the number of sweeps that WhatIf simulates, so that its answers are bounded.
const maxSimulatedSweeps = 2000

// WhatIf simulates the sweeps of a ledger that were submitted in a period: under their own policy, with another weight of
// one sweep, and under other policies. It calls tell with the actual results, then with those of each simulation, and
// with the progress in between. from has the policies that there are.
func WhatIf(ctx context.Context, from registry.Registry, l ledger.Ledger, req *outbidv1.SimulateLedgerRequest, tell func(*outbidv1.SimulateLedgerResponse) error) error {
	again, err := NewRerun(ctx, from, l, req.GetPolicies(), nil)
	if err != nil {
		return err
	}
	w := &whatIf{Rerun: again, req: req, tell: tell}
	if err := w.narrow(); err != nil {
		return err
	}
	w.thin()
	if err := w.send(w.happened()); err != nil {
		return err
	}
	for i, f := range again.factories {
		if err := w.run(ctx, f, 0); err != nil {
			return err
		}
		if i == 0 && req.GetSweep() != "" {
			if err := w.run(ctx, f, req.GetWeight()); err != nil {
				return err
			}
		}
	}
	return nil
}

// whatIf simulates the sweeps of a period.
type whatIf struct {
	*Rerun
	req  *outbidv1.SimulateLedgerRequest
	tell func(*outbidv1.SimulateLedgerResponse) error
}

// narrow drops the sweeps that were not submitted in the period.
func (w *whatIf) narrow() error {
	r := w.recording
	before := len(r.Apps)
	r.Apps = slices.DeleteFunc(r.Apps, func(a sim.App) bool {
		at := r.Start.Add(a.Submit)
		return w.req.GetSince() != nil && at.Before(w.req.GetSince().AsTime()) || w.req.GetUntil() != nil && !at.Before(w.req.GetUntil().AsTime())
	})
	switch n := len(r.Apps); {
	case n == 0:
		return BadInput("since: no sweep that ran on workers was submitted from then until the end of the period")
	case n > maxSimulatedSweeps:
		return BadInput("since: %d sweeps were submitted in the period; at most %d are simulated: choose a shorter one", n, maxSimulatedSweeps)
	case n < before:
		w.Assumptions = append(slices.Clip(r.Assumptions), fmt.Sprintf("%d sweeps left out: they were submitted before or after the period, and hold no devices here", before-n))
	default:
		w.Assumptions = slices.Clip(r.Assumptions)
	}
	if id := w.req.GetSweep(); id != "" && !slices.ContainsFunc(r.Apps, func(a sim.App) bool { return idOf(a.Spec) == id }) {
		return BadInput("sweep: %s was not submitted in the period, or cannot be simulated because its trials run at clients or its tuner is a program", id)
	}
	return nil
}

// mostReports is the number of reports of a trial that is simulated with its expected number of steps.
const mostReports = 100

// thin lets trials report less often than they did, because users wait for the result. Trials that are to train for very
// many steps would otherwise take most of the time.
func (w *whatIf) thin() {
	thinned := 0
	for i := range w.recording.Apps {
		a := &w.recording.Apps[i]
		steps, some := float64(tuner.MaxSteps(a.Spec.GetTuner())), false
		for n := range a.Jobs {
			if j := &a.Jobs[n]; j.Loss != nil && j.Every*mostReports < max(steps, float64(j.Steps)) {
				j.Every, some = max(steps, float64(j.Steps))/mostReports, true
			}
		}
		if some {
			thinned++
		}
	}
	if thinned > 0 {
		w.Assumptions = append(w.Assumptions, fmt.Sprintf("%d sweeps whose trials reported more often than %d times; here they report that often", thinned, mostReports))
	}
}

// happened returns how the sweeps fared.
func (w *whatIf) happened() *outbidv1.SimulatedRun {
	run := &outbidv1.SimulatedRun{Assumptions: w.Assumptions}
	for _, a := range w.recording.Apps {
		then := w.recording.Actual[idOf(a.Spec)]
		row := w.row(a)
		row.DeviceSeconds = then.DeviceSeconds
		if !then.Ended.IsZero() {
			row.Seconds = new(then.Ended.Sub(row.GetSubmitted().AsTime()).Seconds())
		}
		row.Rho = known(then.Rho)
		run.Sweeps = append(run.Sweeps, row)
	}
	return run
}

// row returns a row for an app without results.
func (w *whatIf) row(a sim.App) *outbidv1.SimulatedSweep {
	return &outbidv1.SimulatedSweep{
		Sweep: idOf(a.Spec), Submitted: timestamppb.New(w.recording.Start.Add(a.Submit)), UnknownSpeed: !hasSpeeds(&a),
	}
}

// run simulates the sweeps under a policy, with another weight of the request's sweep unless weight is 0.
func (w *whatIf) run(ctx context.Context, f PolicyFactory, weight float64) error {
	p, err := f.New()
	if err != nil {
		return err
	}
	set := w.recording.Setup(p)
	set.Policy, set.Control = func() policy.Policy { return p }, settings()
	if weight != 0 {
		set.Apps = slices.Clone(set.Apps)
		for i, a := range set.Apps {
			if idOf(a.Spec) == w.req.GetSweep() {
				set.Apps[i] = a.Weighing(weight)
			}
		}
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	said := -1
	set.Progress = func(_ time.Duration, ended, sweeps int) {
		percent := 100 * ended / max(1, sweeps)
		if percent == said || ctx.Err() != nil {
			return
		}
		said = percent
		now := &outbidv1.SimulationProgress{Policy: f.Name, Ended: int32(ended), Sweeps: int32(sweeps)}
		if err := w.tell(&outbidv1.SimulateLedgerResponse{Piece: &outbidv1.SimulateLedgerResponse_Progress{Progress: now}}); err != nil {
			stop(err)
		}
	}
	got, err := sim.Run(ctx, set)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("policy %s: %w", f.Name, err)
	}
	return w.send(w.result(f.Name, weight, got))
}

// result returns how the sweeps fared in a simulation.
func (w *whatIf) result(policy string, weight float64, got sim.Result) *outbidv1.SimulatedRun {
	run := &outbidv1.SimulatedRun{Policy: policy, Weight: weight}
	at := map[string]int{}
	for i, a := range w.recording.Apps {
		at[idOf(a.Spec)] = i
		run.Sweeps = append(run.Sweeps, w.row(a))
	}
	for _, s := range got.State.Sweeps {
		if i, ok := at[idOf(s.Spec)]; ok && s.Done() {
			run.Sweeps[i].Seconds, run.Sweeps[i].DeviceSeconds = new(s.Ended.Sub(s.Submitted).Seconds()), s.DeviceSeconds
		}
	}
	for _, fate := range got.Series.Fates {
		if s := got.State.Sweeps[fate.Sweep]; s != nil && s.State != outbidv1.SweepState_SWEEP_STATE_STOPPED {
			if i, ok := at[idOf(s.Spec)]; ok {
				run.Sweeps[i].Rho = known(fate.Rho)
			}
		}
	}
	return run
}

func (w *whatIf) send(run *outbidv1.SimulatedRun) error {
	return w.tell(&outbidv1.SimulateLedgerResponse{Piece: &outbidv1.SimulateLedgerResponse_Run{Run: run}})
}

// known returns a finish-time fairness, or nil if it is unknown.
func known(rho float64) *float64 {
	if !(rho > 0) || math.IsInf(rho, 0) {
		return nil
	}
	return &rho
}

// idOf returns the id of the sweep of the ledger that a simulated sweep repeats.
func idOf(spec *outbidv1.SweepSpec) string { return spec.GetLabels()["replayed"] }

// hasSpeeds reports whether a speed of an app was measured or given.
func hasSpeeds(a *sim.App) bool {
	return slices.ContainsFunc(a.Jobs, func(j sim.Job) bool { return len(j.Speeds.Measured) > 0 })
}
