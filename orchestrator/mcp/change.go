package mcp

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"sigs.k8s.io/yaml"

	"github.com/outbid-dev/outbid/orchestrator/spec"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// specInput is a sweep's file.
func specInput() input {
	return input{name: "yaml", kind: "string", required: true, least: 1, most: 1 << 20, about: aboutSpec}
}

// aboutSpec describes a sweep's file to a model, briefly.
const aboutSpec = `the sweep's file as YAML. For example:
name: digits
space:
  lr: {float: {low: 0.0001, high: 1, log: true}}
  width: {int: {low: 16, high: 256}}
  optimiser: {choice: {values: [adam, sgd]}}
metric: loss
mode: min
tuner: {asha: {max_steps: 27}}
resources: {devices: {min: 1, max: 1}}
limits: {trials: 40, wall_time: 2h}
program:
  command: [python, train.py, --lr, "{lr}", --width, "{width}", --optimiser, "{optimiser}"]
  workdir: DIRECTORY_ON_THE_WORKER
The program trains from step $OUTBID_START_STEP to $OUTBID_UNTIL_STEP and appends a line of JSON such as
{"step": 1, "loss": 0.5} to the file $OUTBID_REPORT for each report. The resource ` + exampleURI + ` explains every part.`

// readSpec parses a sweep's file.
func readSpec(text string) (*outbidv1.SweepSpec, error) {
	s, err := spec.Parse([]byte(text))
	if err != nil {
		return nil, fmt.Errorf("yaml: %w", err)
	}
	var written struct {
		Tenant *string `json:"tenant"`
	}
	if err := yaml.Unmarshal([]byte(text), &written); err == nil && written.Tenant == nil {
		s.Tenant = "" // the server derives it from the token
	}
	return s, nil
}

// located adds the position in the file to a server's error about a field of the spec.
func located(text string, err error) error {
	if status.Code(err) == codes.InvalidArgument {
		return errors.New("yaml: " + spec.Locate([]byte(text), status.Convert(err).Message()))
	}
	return err
}

// previewView is the answer of preview.
type previewView struct {
	answer
	Trials      int32            `json:"trials,omitempty" jsonschema:"total trials; absent if unbounded"`
	Steps       int64            `json:"steps,omitempty" jsonschema:"total steps; absent if unbounded"`
	DeviceHours *number          `json:"device_hours,omitempty" jsonschema:"at step_seconds; absent without it"`
	LeastCost   *number          `json:"least_cost,omitempty" jsonschema:"of device_hours on the cheapest device that the sweep may use; absent without prices"`
	MostCost    *number          `json:"most_cost,omitempty" jsonschema:"on the dearest"`
	Currency    string           `json:"currency,omitempty"`
	Rungs       []rungView       `json:"rungs,omitempty"`
	Examples    []map[string]any `json:"examples,omitempty" jsonschema:"example configurations"`
	Warnings    []string         `json:"warnings,omitempty" jsonschema:"problems of the sweep; show them to the user"`
}

type rungView struct {
	Bracket   int32 `json:"bracket"`
	UntilStep int64 `json:"until_step"`
	Trials    int32 `json:"trials"`
}

func previewTool() *tool {
	type arguments struct {
		YAML        string  `json:"yaml"`
		StepSeconds float64 `json:"step_seconds"`
	}
	return define(tool{
		name: "preview", title: "Preview a sweep",
		about: "Checks a sweep's file and shows what it would do: trials, steps, device-hours, warnings. It starts nothing.",
		inputs: []input{specInput(), {
			name: "step_seconds", kind: "number", most: 1e9, about: "seconds that one step takes on one device, to estimate device-hours",
		}},
	}, func(ctx context.Context, c *call, in arguments) (*previewView, error) {
		s, err := readSpec(in.YAML)
		if err != nil {
			return nil, err
		}
		got, err := c.API.PreviewSweep(ctx, &outbidv1.PreviewSweepRequest{Spec: s, StepSeconds: in.StepSeconds})
		if err != nil {
			return nil, located(in.YAML, err)
		}
		v := &previewView{Trials: got.GetOutlook().GetTrials(), Steps: got.GetOutlook().GetSteps(), Warnings: lines(got.GetWarnings())}
		if in.StepSeconds > 0 {
			v.DeviceHours = new(number(got.GetDeviceHours()))
		}
		if got.LeastCost != nil && got.MostCost != nil {
			v.LeastCost, v.MostCost = new(number(got.GetLeastCost())), new(number(got.GetMostCost()))
			v.Currency = cleanLine(got.GetCurrency(), maxName)
		}
		rungs := got.GetOutlook().GetRungs()
		for _, r := range rungs[:min(len(rungs), maxValues)] {
			v.Rungs = append(v.Rungs, rungView{r.GetBracket(), r.GetUntilStep(), r.GetTrials()})
		}
		if len(rungs) > maxValues {
			v.cut("rungs: %d more", len(rungs)-maxValues)
		}
		for _, e := range got.GetExamples() {
			v.Examples = append(v.Examples, configOf(&outbidv1.Trial{Config: e}))
		}
		return v, nil
	})
}

// lines cleans warnings, at most maxValues.
func lines(from []string) []string {
	var to []string
	for _, line := range from[:min(len(from), maxValues)] {
		to = append(to, cleanLine(line, maxLine))
	}
	return to
}

// changedView is the answer of tools that change a sweep.
type changedView struct {
	answer
	Sweep         sweepView  `json:"sweep" jsonschema:"the sweep after the change"`
	Warnings      []string   `json:"warnings,omitempty" jsonschema:"problems of the sweep; show them to the user"`
	RepeatedSteps int64      `json:"repeated_steps,omitempty" jsonschema:"steps that are trained again, because checkpoints were deleted"`
	Repeated      []redoView `json:"repeated,omitempty" jsonschema:"the trials that repeat steps"`
}

type redoView struct {
	Trial    int32 `json:"trial"`
	FromStep int64 `json:"from_step"`
	Step     int64 `json:"step" jsonschema:"the step that it had reached"`
}

func submitTool() *tool {
	type arguments struct {
		YAML string `json:"yaml"`
		Key  string `json:"idempotency_key"`
	}
	return define(tool{
		name: "submit", title: "Start a sweep", effect: adds, runsCode: true,
		about: "Starts a sweep on the Outbid server and returns at once. It runs the file's program on workers and uses their devices until a " +
			"limit is reached: preview first.",
		inputs: []input{specInput(), {
			name: "idempotency_key", kind: "string", most: 100,
			about: "any unique text; a repeated call with the same key returns the first call's sweep instead of starting another",
		}},
	}, func(ctx context.Context, c *call, in arguments) (*changedView, error) {
		s, err := readSpec(in.YAML)
		if err != nil {
			return nil, err
		}
		if in.Key == "" {
			in.Key = rand.Text()
		}
		got, err := c.API.SubmitSweep(ctx, &outbidv1.SubmitSweepRequest{Spec: s, IdempotencyKey: in.Key})
		if err != nil {
			return nil, located(in.YAML, err)
		}
		return &changedView{Sweep: c.viewSweep(got.GetSweep()), Warnings: lines(got.GetWarnings())}, nil
	})
}

func pauseTool() *tool {
	return controlTool(outbidv1.SweepCommand_SWEEP_COMMAND_PAUSE, tool{
		name: "pause", title: "Pause a sweep", effect: ends,
		about: "Makes every running trial of a sweep save a checkpoint and release its devices. resume continues from there. Time paused counts " +
			"towards wall_time.",
	})
}

func resumeTool() *tool {
	return controlTool(outbidv1.SweepCommand_SWEEP_COMMAND_RESUME, tool{
		name: "resume", title: "Resume a sweep", effect: adds, runsCode: true,
		about: "Continues a sweep that was paused or stopped, from its checkpoints. Use extend for a sweep that is done.",
	})
}

// stoppedView is the answer of stop and retry.
type stoppedView struct {
	answer
	Sweep sweepView  `json:"sweep" jsonschema:"the sweep after the change"`
	Trial *trialView `json:"trial,omitempty" jsonschema:"the trial that was stopped or retried"`
}

func stopTool() *tool {
	type arguments struct {
		Sweep  string
		Trial  *int32
		Reason string
	}
	return define(tool{
		name: "stop", title: "Stop a sweep or a trial", effect: ends, repeatable: true,
		about: "Makes every running trial of a sweep, or one trial, save a checkpoint, and ends it. Reports are kept, but most checkpoints are " +
			"deleted. A sweep continues when one of its trials is stopped.",
		inputs: []input{sweepInput(), trialInput("the whole sweep"), {
			name: "reason", kind: "string", most: 500, about: "why the trial is stopped, for its users",
		}},
	}, func(ctx context.Context, c *call, in arguments) (*stoppedView, error) {
		s, err := c.sweep(ctx, in.Sweep)
		if err != nil {
			return nil, err
		}
		if in.Trial != nil {
			got, err := c.API.ControlTrial(ctx, &outbidv1.ControlTrialRequest{
				Sweep: s.GetId(), Trial: *in.Trial, Command: outbidv1.TrialCommand_TRIAL_COMMAND_STOP, Reason: in.Reason,
			})
			if err != nil {
				return nil, err
			}
			return &stoppedView{Sweep: c.viewSweep(s), Trial: new(viewTrial(got.GetTrial()))}, nil
		}
		if in.Reason != "" {
			return nil, errors.New("reason: works only with a trial")
		}
		got, err := c.API.ControlSweep(ctx, &outbidv1.ControlSweepRequest{Sweep: s.GetId(), Command: outbidv1.SweepCommand_SWEEP_COMMAND_STOP})
		if err != nil {
			return nil, err
		}
		return &stoppedView{Sweep: c.viewSweep(got.GetSweep())}, nil
	})
}

func retryTool() *tool {
	type arguments struct {
		Sweep  string
		Trial  *int32
		Reason string
	}
	return define(tool{
		name: "retry", title: "Retry a failed trial", effect: adds, repeatable: true, runsCode: true,
		about: "Runs a failed trial again, from its newest checkpoint until the step that its tuner wanted. Its result counts, but its tuner " +
			"still regards it as failed. A sweep that is done or has failed continues with it.",
		inputs: []input{sweepInput(), {name: "trial", kind: "integer", most: 1 << 30, required: true, about: "number of the trial"}, {
			name: "reason", kind: "string", most: 500, about: "why the trial is retried, for its users",
		}},
	}, func(ctx context.Context, c *call, in arguments) (*stoppedView, error) {
		s, err := c.sweep(ctx, in.Sweep)
		if err != nil {
			return nil, err
		}
		got, err := c.API.ControlTrial(ctx, &outbidv1.ControlTrialRequest{
			Sweep: s.GetId(), Trial: *in.Trial, Command: outbidv1.TrialCommand_TRIAL_COMMAND_RETRY, Reason: in.Reason,
		})
		if err != nil {
			return nil, err
		}
		return &stoppedView{Sweep: c.viewSweep(s), Trial: new(viewTrial(got.GetTrial()))}, nil
	})
}

// controlTool returns a tool that sends a command for a sweep.
func controlTool(command outbidv1.SweepCommand, t tool) *tool {
	type arguments struct{ Sweep string }
	t.repeatable, t.inputs = true, []input{sweepInput()}
	return define(t, func(ctx context.Context, c *call, in arguments) (*changedView, error) {
		s, err := c.sweep(ctx, in.Sweep)
		if err != nil {
			return nil, err
		}
		got, err := c.API.ControlSweep(ctx, &outbidv1.ControlSweepRequest{Sweep: s.GetId(), Command: command})
		if err != nil {
			return nil, err
		}
		return &changedView{Sweep: c.viewSweep(got.GetSweep())}, nil
	})
}

// extension has the arguments of extend.
type extension struct {
	Sweep       string
	Trials      *int32
	MaxSteps    *int64 `json:"max_steps"`
	Space       string
	Concurrency int32
	Steps       int64
	WallTime    string  `json:"wall_time"`
	DeviceHours float64 `json:"device_hours"`
	Cost        float64
	Target      *float64
	Weight      *float64
	Preview     bool
	Repeat      bool `json:"repeat_steps"`
}

func extendTool() *tool {
	return define(tool{
		name: "extend", title: "Extend a sweep", effect: adds, repeatable: true, runsCode: true,
		about: "Gives a sweep more trials, longer steps, a wider space, other limits or another weight. A sweep that has ended continues; " +
			"another weight or concurrency alone is an error for it. Only what is given changes.",
		inputs: []input{
			sweepInput(),
			{name: "trials", kind: "integer", least: 1, most: 1e9, about: "new total of trials"},
			{name: "max_steps", kind: "integer", least: 1, most: 1e15, about: "new max_steps of the tuner"},
			{name: "space", kind: "string", most: 1 << 20, about: "parameters with wider ranges, as YAML like space in a sweep's file; each must contain its old range"},
			{name: "concurrency", kind: "integer", least: 1, most: 1e9, about: "new limit of trials that run or wait at once"},
			{name: "steps", kind: "integer", least: 1, most: 1e15, about: "new limit of steps over all trials"},
			{name: "wall_time", kind: "string", most: 50, about: "new limit of time since submission, such as 90m"},
			{name: "device_hours", kind: "number", about: "new limit of device-hours of all trials"},
			{name: "cost", kind: "number", about: "new limit of the cost of all trials, in the currency of the server's prices"},
			{name: "target", kind: "number", about: "new value of the metric at which the sweep ends"},
			{name: "weight", kind: "number", about: "new weight relative to other sweeps, above 0; 1 is usual"},
			{name: "preview", kind: "boolean", otherwise: false, about: "change nothing; only return the trials that would repeat steps"},
			{name: "repeat_steps", kind: "boolean", otherwise: false, about: "agree that trials whose checkpoints were deleted train steps again"},
		},
	}, func(ctx context.Context, c *call, in extension) (*changedView, error) {
		s, err := c.sweep(ctx, in.Sweep)
		if err != nil {
			return nil, err
		}
		req, err := in.request(s.GetId())
		if err != nil {
			return nil, err
		}
		return c.extend(ctx, s, req, in)
	})
}

// request returns the request of the API for the arguments.
func (e extension) request(sweep string) (*outbidv1.ExtendSweepRequest, error) {
	req := &outbidv1.ExtendSweepRequest{Sweep: sweep, Trials: e.Trials, MaxSteps: e.MaxSteps, Weight: e.Weight}
	if e.Concurrency > 0 || e.Steps > 0 || e.WallTime != "" || e.DeviceHours != 0 || e.Cost != 0 || e.Target != nil {
		req.Limits = &outbidv1.Limits{
			Concurrency: e.Concurrency, Steps: e.Steps, WallTime: e.WallTime, DeviceHours: e.DeviceHours, Cost: e.Cost, Target: e.Target,
		}
	}
	if e.Space != "" {
		var err error
		if req.Space, err = spec.ParseSpace([]byte(e.Space)); err != nil {
			return nil, fmt.Errorf("space: %w", err)
		}
	}
	if req.Trials == nil && req.MaxSteps == nil && req.Limits == nil && req.Space == nil && req.Weight == nil {
		return nil, errors.New("nothing to extend: give trials, max_steps, space, concurrency, steps, wall_time, device_hours, cost, target or weight")
	}
	return req, nil
}

// extend extends a sweep, unless trials would repeat steps without the caller's agreement.
func (c *call) extend(ctx context.Context, s *outbidv1.Sweep, req *outbidv1.ExtendSweepRequest, in extension) (*changedView, error) {
	asked := proto.CloneOf(req)
	asked.Preview = true
	got, err := c.API.ExtendSweep(ctx, asked)
	if err != nil {
		return nil, err
	}
	v := &changedView{Sweep: c.viewSweep(s)}
	for i, t := range got.GetTrainedAgain() {
		v.RepeatedSteps += t.GetStep() - t.GetFromStep()
		if i < maxValues {
			v.Repeated = append(v.Repeated, redoView{t.GetTrial(), t.GetFromStep(), t.GetStep()})
		}
	}
	if more := len(got.GetTrainedAgain()) - maxValues; more > 0 {
		v.cut("repeated: %d more trials", more)
	}
	if in.Preview {
		return v, nil
	}
	if v.RepeatedSteps > 0 && !in.Repeat {
		return nil, fmt.Errorf("repeat_steps: %s was not extended, because %s would train %d steps again: their later checkpoints were deleted. "+
			"Ask the user, then call extend with repeat_steps=true, or with preview=true for the list",
			s.GetId(), plural(len(got.GetTrainedAgain()), "trial"), v.RepeatedSteps)
	}
	if got, err = c.API.ExtendSweep(ctx, req); err != nil {
		return nil, err
	}
	v.Sweep = c.viewSweep(got.GetSweep())
	return v, nil
}
