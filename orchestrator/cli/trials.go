package cli

import (
	"fmt"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/outbid-dev/outbid/orchestrator/server"
	"github.com/outbid-dev/outbid/orchestrator/spec/terms"
	"github.com/outbid-dev/outbid/worker"
	"github.com/outbid-dev/outbid/worker/health"
	"github.com/outbid-dev/outbid/worker/program"
)

// trialFlags are those of whatever runs trials.
func trialFlags(cmd *cobra.Command, o *server.TrialConfig) {
	f := cmd.Flags()
	f.StringVar(&o.Python, "python", "python3", "Python interpreter for functions that name none")
	f.StringSliceVar(&o.PassEnv, "pass-env", nil, "`NAMES` of environment variables that trials see beside those that they "+
		"need, or patterns such as 'WANDB_*'; may be given several times")
	f.StringVar(&o.User, "trial-user", "", "`USER` that trials run as: auto for one of its own for each, none for the "+
		"worker's own, or a name (default: auto if the server asks for tokens, else none)")
	f.StringSliceVar(&o.Groups, "trial-group", nil, "`GROUPS` that trials of another user belong to, such as video,render")
	f.StringVar(&o.Dir, "trial-dir", "", "`DIR` to make the directory of their files in (default: /var/tmp)")
	o.CheckpointBytes = program.DefaultCheckpointBytes
	f.Var((*bytesFlag)(&o.CheckpointBytes), "checkpoint-bytes", "`BYTES` that one checkpoint may have, by the length of its files; a "+
		"function's trial fails beyond that, and a program's goes on without that checkpoint")
	o.FreeDisk = health.DefaultFreeBytes
	f.Var((*bytesFlag)(&o.FreeDisk), "free-disk", "`BYTES` that have to be free on the disk of the worker's files for it to take new trials")
	f.BoolVar(&o.Trust, "trust-trials", false, "run what people with tokens submit as the worker's own user: they can read "+
		"all that it can, its secrets too")
	_ = cmd.MarkFlagDirname("trial-dir")
}

// bytesFlag is the value of a flag that is an amount of bytes, such as 512MiB.
type bytesFlag int64

// String implements pflag.Value.
func (b *bytesFlag) String() string { return strings.ReplaceAll(humanize.IBytes(uint64(*b)), " ", "") }

// Set implements pflag.Value.
func (b *bytesFlag) Set(text string) error {
	n, err := terms.ParseBytes(text)
	if err == nil {
		*b = bytesFlag(n)
	}
	return err
}

// Type implements pflag.Value.
func (b *bytesFlag) Type() string { return "bytes" }

// averageRateFlag is how fast averages of what forks saved are made.
func averageRateFlag(cmd *cobra.Command, to *string, otherwise string) {
	cmd.Flags().StringVar(to, "average-rate", "", "`BYTES` that an average of what forks saved reads each second at most, such as 512MiB; 0 "+
		"for no limit (default: "+fmt.Sprintf("%dMiB", worker.AverageRateBeside>>20)+otherwise+")")
}

// averageRate reads that flag.
func averageRate(text string, otherwise int64) (int64, error) {
	switch text {
	case "":
		return otherwise, nil
	case "0":
		return 0, nil
	}
	n, err := terms.ParseBytes(text)
	if err != nil || n < worker.LeastAverageRate {
		return 0, badInput("--average-rate %q: want 1MiB or more, such as 512MiB, or 0 for no limit", text)
	}
	return n, nil
}
