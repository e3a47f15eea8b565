package api

import (
	"context"
	"fmt"
	"math"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/outbid-dev/outbid/orchestrator/state"
	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/registry"
	"github.com/outbid-dev/outbid/orchestrator/tuner/space"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

const (
	// maxSimulatedTrials limits the trials of a simulated sweep. For a longer sweep the preview shows the tuner's plan.
	maxSimulatedTrials = 20_000
	// exampleCount is the number of configurations that a preview shows.
	exampleCount = 5
)

// PreviewSweep implements the service.
func (s *sweepService) PreviewSweep(ctx context.Context, req *outbidv1.PreviewSweepRequest) (
	*outbidv1.PreviewSweepResponse, error,
) {
	if seconds := req.GetStepSeconds(); seconds < 0 || math.IsNaN(seconds) || math.IsInf(seconds, 0) {
		return nil, fieldError("step_seconds", "%v: must be the seconds of one step, or 0 if unknown", seconds)
	}
	checked, err := s.prepare(caller(ctx), req.GetSpec())
	if err != nil {
		return nil, err
	}
	if err := s.control.CheckBidder(checked); err != nil {
		return nil, err
	}
	if who := caller(ctx); who.allows(write) { // a viewer may not learn which secrets exist
		if err := s.secrets.checkSecrets(checked); err != nil {
			return nil, err
		}
	}
	prices := s.control.DevicePrices()
	if err := state.CheckCostLimit(checked, prices); err != nil {
		return nil, err
	}
	resp, err := Preview(checked, req.GetStepSeconds())
	if err != nil {
		return nil, err
	}
	addCost(resp, checked, prices, s.control.Nodes())
	resp.Warnings = append(append(warnings(checked, s.control.Nodes()), secretWarnings(checked)...), resp.GetWarnings()...)
	return resp, nil
}

// Preview describes a sweep by running its tuner on simulated metrics. The spec must have passed spec.Check.
// stepSeconds is the duration of a step on one device, or 0 if unknown. The cluster's capacity is not considered.
func Preview(checked *outbidv1.SweepSpec, stepSeconds float64) (*outbidv1.PreviewSweepResponse, error) {
	resp := &outbidv1.PreviewSweepResponse{}
	if own := checked.GetTuner().GetPlugin(); own != nil {
		if own.GetRule() == nil {
			resp.Warnings = append(resp.Warnings, "the tuner is a plugin: its trials are not known before it runs")
			return resp, nil
		}
		resp.Warnings = append(resp.Warnings, "the sampler is a plugin: the configurations shown are random")
		checked = tuner.RuleSpec(checked)
	}
	settings := tuner.Settings{Spec: checked}
	plan, err := registry.Rehearse(settings, maxSimulatedTrials)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", state.ErrInvalid, err)
	}
	if resp.Examples, err = exampleConfigs(settings); err != nil {
		return nil, fmt.Errorf("%w: %w", state.ErrInvalid, err)
	}
	resp.Outlook = plan.Message()
	resp.DeviceHours = float64(plan.Steps) * stepSeconds / 3600
	resp.Warnings = append(resp.Warnings, planWarnings(checked, plan)...)
	if most := checked.GetLimits().GetDeviceHours(); most > 0 && resp.GetDeviceHours() > most {
		resp.Warnings = append(resp.Warnings, fmt.Sprintf("limits.device_hours ends the sweep after %g of the %.3g device-hours that its "+
			"tuner plans", most, resp.GetDeviceHours()))
	}
	return resp, nil
}

// exampleConfigs returns the first configurations that the sweep would train.
func exampleConfigs(settings tuner.Settings) ([]*structpb.Struct, error) {
	t, err := registry.New(settings)
	if err != nil {
		return nil, err
	}
	actions, err := t.Handle(tuner.Ask{N: exampleCount})
	if err != nil {
		return nil, err
	}
	var found []*structpb.Struct
	for _, a := range actions {
		create, ok := a.(tuner.Create)
		if !ok {
			continue
		}
		text, err := space.Canonical(create.Config)
		if err != nil {
			return nil, err
		}
		config := new(structpb.Struct)
		if err := protojson.Unmarshal([]byte(text), config); err != nil {
			return nil, err
		}
		found = append(found, config)
	}
	return found, nil
}

// planWarnings reports where the sweep's limits do not fit the tuner's plan.
func planWarnings(s *outbidv1.SweepSpec, plan tuner.Outlook) []string {
	var found []string
	l := s.GetLimits()
	if plan.Trials == 0 && l.GetSteps() == 0 && l.GetWallTime() == "" && l.GetDeviceHours() == 0 && l.GetCost() == 0 {
		found = append(found, "the sweep ends only when the metric reaches its target: give limits.trials, limits.steps, "+
			"limits.wall_time, limits.device_hours or limits.cost as well")
	}
	if plan.Trials > 0 && plan.Steps == 0 {
		found = append(found, "steps are not known: the training code ends by itself")
	}
	if l.GetSteps() > 0 && plan.Steps > l.GetSteps() {
		found = append(found, fmt.Sprintf("limits.steps ends the sweep after %d of the %d steps that its tuner plans",
			l.GetSteps(), plan.Steps))
	}
	return found
}
