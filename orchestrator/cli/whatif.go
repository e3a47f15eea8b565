package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/outbid-dev/outbid/orchestrator/explain"
	"github.com/outbid-dev/outbid/orchestrator/ledger"
	"github.com/outbid-dev/outbid/orchestrator/policy/registry"
	"github.com/outbid-dev/outbid/orchestrator/sim/experiment"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

const (
	// whatIfName is the hidden command that simulates a ledger for a server.
	whatIfName = "what-if"
	// maxWhatIfBytes limits the ledger that is simulated.
	maxWhatIfBytes = 128 << 20
	// whatIfNice is the niceness of the process that simulates: a third of the server's share of a busy processor.
	whatIfNice = 5
)

// whatIf simulates a server's ledger in another process, so that it takes neither memory nor time from the server.
type whatIf struct{ policies registry.Registry }

// Policies implements server.WhatIf.
func (w whatIf) Policies() []string { return w.policies.Names() }

// Run implements server.WhatIf.
func (whatIf) Run(ctx context.Context, l ledger.Ledger, sweep string, policies []string) ([]explain.Outcome, error) {
	var lines bytes.Buffer
	if err := l.Read(ctx, 1, func(b *outbidv1.Batch) error {
		if lines.Len() > maxWhatIfBytes {
			return fmt.Errorf("the ledger has more than %d bytes", maxWhatIfBytes)
		}
		return ledger.WriteLine(&lines, b)
	}); err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	var out, failed bytes.Buffer
	cmd := exec.CommandContext(ctx, self, whatIfName, sweep, "--policy", strings.Join(policies, ","))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = &lines, &out, &failed
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1", fmt.Sprintf("GOMEMLIMIT=%d", 4*maxWhatIfBytes))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for the server, which then ends it
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	_ = unix.Setpriority(unix.PRIO_PGRP, cmd.Process.Pid, whatIfNice) // on failure it runs at normal priority
	if err := cmd.Wait(); err != nil {
		return nil, errors.Join(ctx.Err(), fmt.Errorf("simulate the ledger: %w: %s", err, bytes.TrimSpace(failed.Bytes())))
	}
	var outcomes []explain.Outcome
	return outcomes, json.Unmarshal(out.Bytes(), &outcomes)
}

// whatIfCommand simulates the ledger on standard input, and writes the outcomes as JSON.
func (ex *explainCommand) whatIfCommand() *cobra.Command {
	var policies []string
	cmd := &cobra.Command{
		Use:   whatIfName + " SWEEP",
		Short: "Simulate a ledger for a server",
		Long: `What-if reads a ledger, as 'outbid export --ledger' writes it, from standard input, and prints when the sweep
ends under its policy, with twice its weight, and under other policies. Servers start it for 'outbid explain'.`,
		Example:     "  outbid what-if digits-1 --policy las",
		Annotations: map[string]string{globalFlags: ""},
		Args:        exactArgs("SWEEP"),
		Hidden:      true,
		RunE: func(cmd *cobra.Command, args []string) error {
			lines, err := io.ReadAll(io.LimitReader(ex.stdin, 2*maxWhatIfBytes))
			if err != nil {
				return err
			}
			l := ledger.NewLines(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(lines)), nil })
			outcomes, err := experiment.Otherwise(cmd.Context(), ex.edition.Policies, l, args[0], policies)
			if err != nil {
				return err
			}
			return json.NewEncoder(ex.stdout).Encode(outcomes)
		},
	}
	cmd.Flags().StringSliceVar(&policies, "policy", nil, "`NAMES` of other policies to simulate, separated by commas")
	return cmd
}
