package cli

import (
	"context"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/outbid-dev/outbid/orchestrator/spec"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

func (sw *sweepCommands) pauseCommand() *cobra.Command {
	cmd := sw.controlCommand(outbidv1.SweepCommand_SWEEP_COMMAND_PAUSE, "pause",
		outbidv1.SweepState_SWEEP_STATE_RUNNING)
	cmd.Short = "Save a sweep's trials and free their devices"
	cmd.Long = `Pause makes every running trial save a checkpoint and release its devices. 'outbid resume' continues from there.
The time paused counts towards the sweep's wall_time.`
	cmd.Example = "  outbid pause digits-1"
	return cmd
}

func (sw *sweepCommands) resumeCommand() *cobra.Command {
	cmd := sw.controlCommand(outbidv1.SweepCommand_SWEEP_COMMAND_RESUME, "resume",
		outbidv1.SweepState_SWEEP_STATE_PAUSED, outbidv1.SweepState_SWEEP_STATE_STOPPED)
	cmd.Short = "Continue a sweep that was paused or stopped"
	cmd.Long = `Resume continues a sweep that was paused or stopped, with the trials that were stopped with it, from their checkpoints.
Use 'outbid extend' for a sweep that is done or has reached a limit.`
	cmd.Example = "  outbid resume digits-1"
	return cmd
}

func (sw *sweepCommands) stopCommand() *cobra.Command {
	var out format
	var reason string
	cmd := &cobra.Command{
		Use:   "stop SWEEP|SWEEP/TRIAL",
		Short: "End a sweep or one of its trials",
		Long: `Stop makes every running trial save a checkpoint, and ends it. Reports are kept, and so are the checkpoints that
the sweep's file asks for and the newest one of each trial that had not ended: 'outbid resume' and 'outbid extend'
continue from those.

With SWEEP/TRIAL only that trial ends, for good. What it has reported counts, and the sweep continues with others.`,
		Example:           "  outbid stop digits-1\n  outbid stop digits-1/17 --reason 'the loss oscillates'",
		Args:              exactArgs("SWEEP or SWEEP/TRIAL"),
		ValidArgsFunction: sw.completeTrials,
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := parseRef(args[0])
			switch {
			case err != nil:
				return err
			case r.trial != nil || r.best:
				return sw.controlTrial(cmd.Context(), r, outbidv1.TrialCommand_TRIAL_COMMAND_STOP, reason, out)
			case reason != "":
				return badInput("--reason: works only with a trial, such as %s/0", args[0])
			}
			return sw.control(cmd.Context(), args[0], outbidv1.SweepCommand_SWEEP_COMMAND_STOP, out)
		},
	}
	outputFlag(cmd, &out)
	cmd.Flags().StringVar(&reason, "reason", "", "`TEXT` for those who ask why the trial ended")
	return cmd
}

func (sw *sweepCommands) retryCommand() *cobra.Command {
	var out format
	var reason string
	cmd := &cobra.Command{
		Use:   "retry SWEEP/TRIAL",
		Short: "Run a failed trial again",
		Long: `Retry runs a failed trial again, from its newest checkpoint or from the beginning if it has none, until the step that
its tuner wanted. Its earlier failures no longer count against max_restarts. What it reports counts for the sweep; its
tuner still regards it as failed, so the trial is not trained beyond that step.

A sweep that is done or has failed continues with it. Resume a stopped sweep first.`,
		Example:           "  outbid retry digits-1/17\n  outbid retry digits-1/17 --reason 'the disk of node a was full'",
		Args:              exactArgs("SWEEP/TRIAL"),
		ValidArgsFunction: sw.completeTrials,
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := parseRef(args[0])
			if err != nil {
				return err
			}
			if r.trial == nil && !r.best {
				return badInput("%s: must be a trial, such as %s/0", args[0], args[0])
			}
			return sw.controlTrial(cmd.Context(), r, outbidv1.TrialCommand_TRIAL_COMMAND_RETRY, reason, out)
		},
	}
	outputFlag(cmd, &out)
	cmd.Flags().StringVar(&reason, "reason", "", "`TEXT` for those who ask why the trial was retried")
	return cmd
}

// controlTrial sends a TrialCommand and prints the trial's state.
func (sw *sweepCommands) controlTrial(ctx context.Context, r ref, command outbidv1.TrialCommand, reason string, out format) error {
	c, err := sw.connect()
	if err != nil {
		return err
	}
	defer c.close()
	t, s, err := c.trial(ctx, r)
	if err != nil {
		return err
	}
	got, err := c.ControlTrial(ctx, &outbidv1.ControlTrialRequest{
		Sweep: s.GetId(), Trial: t.GetNumber(), Command: command, Reason: reason,
	})
	if err != nil {
		return err
	}
	t = got.GetTrial()
	if out != formatTable {
		return sw.printObject(out, viewTrial(t))
	}
	sw.printf("%s is %s\n", trialID(t), withReason(trialState(t.GetState()), t.GetReason()))
	return nil
}

// controlCommand returns a command that sends a SweepCommand. The shell completes sweeps in the given states.
func (sw *sweepCommands) controlCommand(command outbidv1.SweepCommand, name string, states ...outbidv1.SweepState) *cobra.Command {
	var out format
	cmd := &cobra.Command{
		Use:               name + " SWEEP",
		Args:              exactArgs("SWEEP"),
		ValidArgsFunction: sw.completeSweeps(states...),
		RunE: func(cmd *cobra.Command, args []string) error {
			return sw.control(cmd.Context(), args[0], command, out)
		},
	}
	outputFlag(cmd, &out)
	return cmd
}

// control sends a SweepCommand and prints the sweep's state.
func (sw *sweepCommands) control(ctx context.Context, arg string, command outbidv1.SweepCommand, out format) error {
	return sw.onSweep(ctx, arg, func(c *connection, sweep *outbidv1.Sweep) error {
		got, err := c.ControlSweep(ctx, &outbidv1.ControlSweepRequest{Sweep: sweep.GetId(), Command: command})
		if err != nil {
			return err
		}
		return sw.printSweepState(out, got.GetSweep())
	})
}

// printSweepState prints a sweep's state after a command.
func (sw *sweepCommands) printSweepState(out format, s *outbidv1.Sweep) error {
	if out != formatTable {
		return sw.printObject(out, viewSweep(s, sw.now()))
	}
	sw.printf("%s is %s\n", s.GetId(), withReason(sweepState(s.GetState()), s.GetReason()))
	return nil
}

// extension has the flags of extend.
type extension struct {
	trials, concurrency int32
	maxSteps, steps     int64
	space, wallTime     string
	target, weight      float64
	deviceHours, cost   float64
	preview, yes        bool
}

func (sw *sweepCommands) extendCommand() *cobra.Command {
	var out format
	var e extension
	cmd := &cobra.Command{
		Use:   "extend SWEEP",
		Short: "Give a sweep more trials, longer steps, a wider space or another weight",
		Long: `Extend changes the limits of a sweep, or its weight. A sweep that has ended then continues; another weight or
concurrency alone is an error for it. Only what is given changes.

The file of --space has parameters as in the "space" of a sweep's file. Each replaces the one of that name and must
contain its old range.

When a trial ends, most of its checkpoints are deleted (see "checkpoints" in the sweep's file). A trial that continues
without a checkpoint repeats its steps: extend first lists these trials, and asks on a terminal. Elsewhere it then
requires --yes.`,
		Example: `  outbid extend digits-1 --trials 80
  outbid extend digits-1 --max-steps 81
  outbid extend digits-1 --space wider.yaml --wall-time 2h
  outbid extend digits-1 --weight 2`,
		Args:              exactArgs("SWEEP"),
		ValidArgsFunction: sw.completeSweeps(),
		RunE: func(cmd *cobra.Command, args []string) error {
			req, err := sw.extendRequest(cmd, e)
			if err != nil {
				return err
			}
			return sw.onSweep(cmd.Context(), args[0], func(c *connection, sweep *outbidv1.Sweep) error {
				req.Sweep = sweep.GetId()
				if goOn, err := sw.agreeToExtend(cmd.Context(), c, req, e); err != nil || !goOn {
					return err
				}
				got, err := c.ExtendSweep(cmd.Context(), req)
				if err != nil {
					return err
				}
				return sw.printSweepState(out, got.GetSweep())
			})
		},
	}
	outputFlag(cmd, &out)
	f := cmd.Flags()
	f.Int32Var(&e.trials, "trials", 0, "new total of trials")
	f.Int64Var(&e.maxSteps, "max-steps", 0, "new max_steps of the tuner")
	f.BoolVar(&e.preview, "preview", false, "only list the trials that would repeat their steps")
	f.BoolVar(&e.yes, "yes", false, "continue without a question")
	f.StringVar(&e.space, "space", "", "`FILE` with the parameters that get a wider range")
	f.Int32Var(&e.concurrency, "concurrency", 0, "new limit of trials that run or wait at once")
	f.Int64Var(&e.steps, "steps", 0, "new limit of steps over all trials")
	f.StringVar(&e.wallTime, "wall-time", "", "new limit of time since submission, such as 90m")
	f.Float64Var(&e.deviceHours, "device-hours", 0, "new limit of device-hours of all trials")
	f.Float64Var(&e.cost, "cost", 0, "new limit of the cost of all trials, in the currency of the server's prices")
	f.Float64Var(&e.target, "target", 0, "new value of the metric at which the sweep ends")
	f.Float64Var(&e.weight, "weight", 0, "new weight relative to other sweeps; 1 is usual")
	_ = cmd.MarkFlagFilename("space", "yaml", "yml", "json")
	return cmd
}

// maxRetrainedShown is the maximum number of retrained trials that extend lists.
const maxRetrainedShown = 10

// agreeToExtend shows which trials would be retrained, and asks whether to continue.
func (sw *sweepCommands) agreeToExtend(ctx context.Context, c *connection, req *outbidv1.ExtendSweepRequest, e extension) (bool, error) {
	asked := proto.CloneOf(req)
	asked.Preview = true
	got, err := c.ExtendSweep(ctx, asked)
	if err != nil {
		return false, err
	}
	again := got.GetTrainedAgain()
	steps := int64(0)
	for i, t := range again {
		steps += t.GetStep() - t.GetFromStep()
		if i < maxRetrainedShown {
			sw.notef("%s/%d is retrained from step %s, although it had reached %s: its later checkpoints were deleted when it ended", req.GetSweep(),
				t.GetTrial(), formatCount(t.GetFromStep()), formatCount(t.GetStep()))
		}
	}
	switch {
	case len(again) > 0:
		sw.notef("%d trials repeat %s steps", len(again), formatCount(steps))
	case e.preview:
		sw.notef("no trial repeats any steps")
	}
	if e.preview || e.yes || len(again) == 0 {
		return !e.preview, nil
	}
	if !sw.term.in || !sw.term.err {
		return false, badInput("%s was not extended because standard input is not a terminal: give --yes to extend it without a question", req.GetSweep())
	}
	_, _ = io.WriteString(sw.stderr, "Extend it? [y = yes, N = no] ")
	select {
	case answer := <-sw.readLine():
		answer = strings.ToLower(strings.TrimSpace(answer))
		if answer == "y" || answer == "yes" {
			return true, nil
		}
		sw.notef("%s was not extended", req.GetSweep())
		return false, nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// extendRequest builds the request from the flags that were given.
func (sw *sweepCommands) extendRequest(cmd *cobra.Command, e extension) (*outbidv1.ExtendSweepRequest, error) {
	given := cmd.Flags().Changed
	req := &outbidv1.ExtendSweepRequest{}
	limits := &outbidv1.Limits{Concurrency: e.concurrency, Steps: e.steps, WallTime: e.wallTime, DeviceHours: e.deviceHours, Cost: e.cost}
	if given("target") {
		limits.Target = &e.target
	}
	some := false
	for _, f := range []struct {
		flag string
		ok   bool
	}{
		{"trials", e.trials > 0},
		{"max-steps", e.maxSteps > 0},
		{"concurrency", e.concurrency > 0},
		{"steps", e.steps > 0},
		{"wall-time", e.wallTime != ""},
		{"device-hours", e.deviceHours > 0},
		{"cost", e.cost > 0},
		{"target", true},
		{"weight", e.weight > 0},
		{"space", e.space != ""},
	} {
		if !given(f.flag) {
			continue
		}
		if !f.ok {
			return nil, badInput("--%s %s: want more than 0", f.flag, cmd.Flags().Lookup(f.flag).Value)
		}
		some = true
		switch f.flag {
		case "trials":
			req.Trials = &e.trials
		case "max-steps":
			req.MaxSteps = &e.maxSteps
		case "weight":
			req.Weight = &e.weight
		case "space":
		default:
			req.Limits = limits
		}
	}
	if !some {
		return nil, badInput("nothing to extend: give --trials, --max-steps, --space, --weight or a limit (see 'outbid extend --help')")
	}
	if e.space == "" {
		return req, nil
	}
	data, err := sw.readFile(e.space)
	if err != nil {
		return nil, err
	}
	if req.Space, err = spec.ParseSpace(data); err != nil {
		return nil, badInput("%s: %w", e.space, err)
	}
	return req, nil
}
