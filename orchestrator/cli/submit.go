package cli

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/metadata"

	"github.com/outbid-dev/outbid/orchestrator/spec"
	"github.com/outbid-dev/outbid/orchestrator/traceparent"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// sweepCommands write, start, follow, control and delete sweeps.
type sweepCommands struct {
	*client
	interrupts interrupts
}

func (sw *sweepCommands) submitCommand() *cobra.Command {
	var out format
	cmd := &cobra.Command{
		Use:   "submit FILE.yaml",
		Short: "Start a sweep and return",
		Long: `Submit checks a sweep's file, starts the sweep on the server, prints its id, and returns.

A file named "-" is read from standard input.`,
		Example: `  outbid submit sweep.yaml
  id=$(outbid submit sweep.yaml) && outbid watch $id`,
		Args:              exactArgs("FILE.yaml"),
		ValidArgsFunction: completeYAML,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, sweep, err := sw.submit(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			defer c.close()
			if out != formatTable {
				return sw.printObject(out, viewSweep(sweep, sw.now()))
			}
			sw.printf("%s\n", sweep.GetId())
			sw.notef("follow it with 'outbid watch %s', stop it with 'outbid stop %s'", sweep.GetId(), sweep.GetId())
			return nil
		},
	}
	outputFlag(cmd, &out)
	return cmd
}

func (sw *sweepCommands) runCommand() *cobra.Command {
	var out format
	cmd := &cobra.Command{
		Use:   "run FILE.yaml",
		Short: "Start a sweep and follow it to its end",
		Long: `Run submits a sweep and follows it: a live display on a terminal, plain lines elsewhere, and with
-o json a line of JSON for every update and one for the result.

The sweep lives on the server, not in this command. Ctrl-C asks whether to leave it running, to save and pause it, or
to stop it; a second Ctrl-C, or one without a terminal, leaves it running. If the server restarts, run waits for it.

The exit code is 0 when the sweep is done, 1 when it failed, 3 when it was stopped, 130 when it was left running.`,
		Example: `  outbid run sweep.yaml
  outbid run sweep.yaml -o json | jq -r 'select(.type == "result").sweep.best.config'`,
		Args:              exactArgs("FILE.yaml"),
		ValidArgsFunction: completeYAML,
		Annotations:       map[string]string{ownInterrupts: "asks"},
		RunE: func(cmd *cobra.Command, args []string) error {
			signals, release := sw.interrupts()
			defer release()
			c, sweep, err := sw.submit(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			defer c.close()
			sw.notef("dashboard: %s", pageURL(c.target.url, sweep.GetId()))
			f := &following{
				console: sw.console, conn: c, id: sweep.GetId(), show: sw.presenter(cmd.Context(), c, sweep.GetId(), out), signals: signals,
				ask: sw.term.in && sw.term.out && out == formatTable, leaving: true,
			}
			return f.follow(cmd.Context())
		},
	}
	outputFlag(cmd, &out)
	return cmd
}

func (sw *sweepCommands) watchCommand() *cobra.Command {
	var out format
	cmd := &cobra.Command{
		Use:   "watch SWEEP",
		Short: "Follow a sweep to its end",
		Long: `Watch follows a sweep like 'outbid run'. Ctrl-C ends only watch, never the sweep.

SWEEP is an id such as digits-1, or a name such as digits, which means its newest sweep. The exit code is 0 when the
sweep is done, 1 when it failed, 3 when it was stopped.`,
		Example: `  outbid watch digits-1
  outbid watch digits -o json`,
		Args:              exactArgs("SWEEP"),
		ValidArgsFunction: sw.completeSweeps(),
		Annotations:       map[string]string{ownInterrupts: "ends"},
		RunE: func(cmd *cobra.Command, args []string) error {
			signals, release := sw.interrupts()
			defer release()
			return sw.onSweep(cmd.Context(), args[0], func(c *connection, sweep *outbidv1.Sweep) error {
				f := &following{
					console: sw.console, conn: c, id: sweep.GetId(), show: sw.presenter(cmd.Context(), c, sweep.GetId(), out), signals: signals,
				}
				return f.follow(cmd.Context())
			})
		},
	}
	outputFlag(cmd, &out)
	return cmd
}

// presenter chooses how progress is shown.
func (sw *sweepCommands) presenter(ctx context.Context, c *connection, sweep string, out format) presenter {
	failed := failureLog{stderr: func(trial int32) []string { return c.lastStderr(ctx, sweep, trial) }}
	switch {
	case out != formatTable:
		return &jsonPresenter{w: sw.stdout, now: sw.now}
	case sw.term.out:
		return &livePresenter{w: sw.stdout, term: sw.term, now: sw.now, failed: failed}
	default:
		return &plainPresenter{w: sw.stdout, now: sw.now, failed: failed}
	}
}

// withTrace adds the span of the program that started this command to a call, if there is one.
func withTrace(ctx context.Context, parent string) context.Context {
	if span, err := traceparent.Parse(parent); err == nil {
		return metadata.AppendToOutgoingContext(ctx, traceparent.Header, span.String())
	}
	return ctx
}

// submit reads a sweep's file and starts it. The caller closes the connection.
func (sw *sweepCommands) submit(ctx context.Context, name string) (*connection, *outbidv1.Sweep, error) {
	file, err := sw.readSpec(name)
	if err != nil {
		return nil, nil, err
	}
	c, err := sw.connect()
	if err != nil {
		return nil, nil, err
	}
	// The key makes it safe to repeat an interrupted call.
	ctx = withTrace(ctx, sw.getenv("TRACEPARENT"))
	req := &outbidv1.SubmitSweepRequest{Spec: file.spec, IdempotencyKey: rand.Text()}
	got, err := c.SubmitSweep(ctx, req)
	if unreachableError(err) && ctx.Err() == nil {
		select {
		case <-time.After(firstRetry):
		case <-ctx.Done():
		}
		got, err = c.SubmitSweep(ctx, req)
	}
	if err != nil {
		c.close()
		return nil, nil, file.locate(err)
	}
	if !file.hasTuner {
		sw.notef("%s", spec.UsualReason(file.spec))
	}
	for _, warning := range got.GetWarnings() {
		sw.notef("warning: %s", warning)
	}
	return c, got.GetSweep(), nil
}

// trimOp removes the system call's name from an error about a file.
func trimOp(err error) error {
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		return fmt.Errorf("%s: %w", path.Path, path.Err)
	}
	return err
}

// completeYAML offers sweep files.
func completeYAML(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return []string{"yaml", "yml", "json"}, cobra.ShellCompDirectiveFilterFileExt
}
