package mcp

import (
	"strings"
	"testing"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

const goodSweep = `name: digits
space:
  lr: {float: {low: 0.0001, high: 1, log: true}}
metric: loss
mode: min
tuner: {random: {max_steps: 3}}
limits: {trials: 4}
program:
  command: [python, train.py, "{lr}"]
`

func TestSubmitStartsTheSweepOfTheFile(t *testing.T) {
	t.Parallel()
	f := newFake()
	session := f.client(t, Config{})
	got := mustAsk(t, session, "submit", map[string]any{"yaml": goodSweep, "idempotency_key": "once"})
	if id := got["sweep"].(map[string]any)["id"]; id != "digits-1" || got["warnings"] == nil {
		t.Errorf("the answer is %v", got)
	}
	mustAsk(t, session, "submit", map[string]any{"yaml": goodSweep + "tenant: vision\n"})
	first, second := f.got[0].(*outbidv1.SubmitSweepRequest), f.got[1].(*outbidv1.SubmitSweepRequest)
	if first.GetIdempotencyKey() != "once" || first.GetSpec().GetTenant() != "" || first.GetSpec().GetLimits().GetTrials() != 4 {
		t.Errorf("the first request is %v", first)
	}
	if second.GetIdempotencyKey() == "" || second.GetSpec().GetTenant() != "vision" {
		t.Errorf("the second request is %v", second)
	}
}

func TestPreviewStartsNothing(t *testing.T) {
	t.Parallel()
	f := newFake()
	got := mustAsk(t, f.client(t, Config{}), "preview", map[string]any{"yaml": goodSweep, "step_seconds": 2})
	if got["trials"] != 9.0 || got["device_hours"] != 2.5 || got["warnings"].([]any)[0] != "no node has v100" {
		t.Errorf("the answer is %v", got)
	}
	if len(f.got) > 0 {
		t.Errorf("the server was changed: %v", f.got)
	}
}

func TestControlSendsTheCommandForTheNewestSweepOfAName(t *testing.T) {
	t.Parallel()
	for tool, want := range map[string]outbidv1.SweepCommand{
		"pause":  outbidv1.SweepCommand_SWEEP_COMMAND_PAUSE,
		"resume": outbidv1.SweepCommand_SWEEP_COMMAND_RESUME,
		"stop":   outbidv1.SweepCommand_SWEEP_COMMAND_STOP,
	} {
		f := newFake()
		mustAsk(t, f.client(t, Config{}), tool, map[string]any{"sweep": "digits"})
		req := f.got[0].(*outbidv1.ControlSweepRequest)
		if req.GetSweep() != "digits-2" || req.GetCommand() != want {
			t.Errorf("%s sent %v", tool, req)
		}
	}
}

func TestStopEndsOneTrial(t *testing.T) {
	t.Parallel()
	f := newFake()
	got := mustAsk(t, f.client(t, Config{}), "stop", map[string]any{"sweep": "digits", "trial": 1, "reason": "it diverges"})
	req := f.got[0].(*outbidv1.ControlTrialRequest)
	if req.GetSweep() != "digits-2" || req.GetTrial() != 1 || req.GetCommand() != outbidv1.TrialCommand_TRIAL_COMMAND_STOP || req.GetReason() != "it diverges" {
		t.Errorf("the request is %v", req)
	}
	if trial, _ := got["trial"].(map[string]any); trial["state"] != "pruned" {
		t.Errorf("the answer is %v", got)
	}
}

func TestRetryRunsOneTrialAgain(t *testing.T) {
	t.Parallel()
	f := newFake()
	session := f.client(t, Config{})
	got := mustAsk(t, session, "retry", map[string]any{"sweep": "digits", "trial": 1, "reason": "the disk was full"})
	req := f.got[0].(*outbidv1.ControlTrialRequest)
	if req.GetSweep() != "digits-2" || req.GetTrial() != 1 || req.GetCommand() != outbidv1.TrialCommand_TRIAL_COMMAND_RETRY || req.GetReason() != "the disk was full" {
		t.Errorf("the request is %v", req)
	}
	if trial, _ := got["trial"].(map[string]any); trial["state"] != "queued" {
		t.Errorf("the answer is %v", got)
	}
}

func TestExtendSendsOnlyWhatWasGiven(t *testing.T) {
	t.Parallel()
	f := newFake()
	mustAsk(t, f.client(t, Config{}), "extend", map[string]any{
		"sweep": "digits-2", "trials": 80, "wall_time": "2h", "device_hours": 3, "cost": 40, "target": 0, "weight": 2, "space": "lr: {float: {low: 0, high: 2}}",
	})
	preview, req := f.got[0].(*outbidv1.ExtendSweepRequest), f.got[1].(*outbidv1.ExtendSweepRequest)
	if !preview.GetPreview() || req.GetPreview() {
		t.Errorf("the requests are %v and %v", preview, req)
	}
	if req.GetTrials() != 80 || req.MaxSteps != nil || req.GetLimits().GetWallTime() != "2h" || req.GetLimits().GetDeviceHours() != 3 || req.GetLimits().GetCost() != 40 || req.GetLimits().Target == nil || req.GetWeight() != 2 ||
		req.GetSpace()["lr"].GetFloat().GetHigh() != 2 {
		t.Errorf("the request is %v", req)
	}
}

func TestExtendAsksBeforeStepsAreRepeated(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.redone = []*outbidv1.TrainedAgain{{Trial: 3, FromStep: 1, Step: 9}, {Trial: 4, Step: 2}}
	session := f.client(t, Config{})
	_, problem := ask(t, session, "extend", map[string]any{"sweep": "digits-2", "trials": 80})
	if !strings.Contains(problem, "repeat_steps: digits-2 was not extended, because 2 trials would train 10 steps again") {
		t.Errorf("got %q", problem)
	}
	got := mustAsk(t, session, "extend", map[string]any{"sweep": "digits-2", "trials": 80, "preview": true})
	if got["repeated_steps"] != 10.0 || len(got["repeated"].([]any)) != 2 {
		t.Errorf("the preview is %v", got)
	}
	for _, req := range f.got {
		if !req.(*outbidv1.ExtendSweepRequest).GetPreview() {
			t.Errorf("it was extended: %v", req)
		}
	}
	mustAsk(t, session, "extend", map[string]any{"sweep": "digits-2", "trials": 80, "repeat_steps": true})
	if last := f.got[len(f.got)-1].(*outbidv1.ExtendSweepRequest); last.GetPreview() {
		t.Errorf("it was not extended: %v", last)
	}
}
