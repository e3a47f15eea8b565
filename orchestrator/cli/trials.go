package cli

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/outbid-dev/outbid/orchestrator/server"
	"github.com/outbid-dev/outbid/orchestrator/spec/terms"
	"github.com/outbid-dev/outbid/worker"
	"github.com/outbid-dev/outbid/worker/confine"
	"github.com/outbid-dev/outbid/worker/program"
)

// trialFlags adds the flags of commands that run trials.
func trialFlags(cmd *cobra.Command, o *server.TrialConfig) {
	f := cmd.Flags()
	f.StringVar(&o.Python, "python", "python3", "Python interpreter for functions that do not name one")
	f.StringSliceVar(&o.PassEnv, "pass-env", nil, "`NAMES` of environment variables that trials see in addition to those that "+
		"they need, or patterns such as 'WANDB_*'; may be repeated")
	f.StringVar(&o.User, "trial-user", "", "`USER` that trials run as: auto for a separate user for each, none for the "+
		"worker's user, or a name (default: auto if the server requires tokens, else none)")
	f.StringSliceVar(&o.Groups, "trial-group", nil, "`GROUPS` of trials that run as another user, such as video,render")
	f.StringVar(&o.Dir, "trial-dir", "", "`DIR` in which to create the directory of trials' files (default: /var/tmp)")
	o.CheckpointBytes = program.DefaultCheckpointBytes
	f.Var((*bytesFlag)(&o.CheckpointBytes), "checkpoint-bytes", "most `BYTES` of one checkpoint, by the length of its files; beyond "+
		"that a function's trial fails, and a program's trial continues without the checkpoint")
	o.ScratchBytes, o.DiskMargin = worker.DefaultScratchBytes, worker.DefaultDiskMargin
	f.Var(&boundFlag{&o.ScratchBytes, true}, "scratch-bytes", "most `BYTES` of one trial's files on the disk, or none; a trial with more fails")
	f.Var(&boundFlag{&o.DiskMargin, true}, "disk-margin", "`BYTES` to keep free on the disk of trials' files, or none: with less the worker accepts no "+
		"new trials, and the trial with the most data fails")
	f.BoolVar(&o.NoDiskHold, "no-disk-hold", false, "never slow down a trial whose writes make others on the node wait for the disk")
	o.Processes, o.Files = confine.DefaultProcesses, confine.DefaultFiles
	f.Var(&boundFlag{&o.Processes, false}, "trial-processes", "`N` processes and threads of one trial, or none for no limit")
	f.Var(&boundFlag{&o.Files, false}, "trial-files", "`N` files that each process of a trial, and the worker, may have open, or none for no limit")
	f.StringVar(&o.Network, "trial-network", confine.NetworkHost, "`NETWORK` of trials: host, or none for loopback only")
	f.BoolVar(&o.Trust, "trust-trials", false, "run trials as the worker's user even if the server requires tokens: they can read "+
		"everything that the worker can, including its secrets")
	_ = cmd.MarkFlagDirname("trial-dir")
}

// bytesFlag is a flag for an amount of bytes, such as 512MiB.
type bytesFlag int64

// String implements pflag.Value.
func (b *bytesFlag) String() string {
	return strings.NewReplacer(" ", "", ".0", "").Replace(humanize.IBytes(uint64(*b)))
}

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

// boundFlag is a flag for a limit: an amount of bytes, a number, or none.
type boundFlag struct {
	to    *int64
	bytes bool
}

// String implements pflag.Value.
func (b *boundFlag) String() string {
	switch {
	case b.to == nil:
		return ""
	case *b.to < 0:
		return "none"
	case b.bytes:
		return (*bytesFlag)(b.to).String()
	}
	return strconv.FormatInt(*b.to, 10)
}

// Set implements pflag.Value.
func (b *boundFlag) Set(text string) error {
	switch {
	case text == "none":
		*b.to = -1
	case b.bytes:
		return (*bytesFlag)(b.to).Set(text)
	default:
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 1 {
			return fmt.Errorf("%q: want a number of 1 or more, or none", text)
		}
		*b.to = n
	}
	return nil
}

// Type implements pflag.Value.
func (b *boundFlag) Type() string { return "amount" }

// averageRateFlag adds the flag for the read rate of averages of forks.
func averageRateFlag(cmd *cobra.Command, to *string, otherwise string) {
	cmd.Flags().StringVar(to, "average-rate", "", "most `BYTES` that an average of forks reads per second, such as 512MiB; 0 "+
		"for no limit (default: "+fmt.Sprintf("%dMiB", worker.AverageRateBeside>>20)+otherwise+")")
}

// averageRate parses that flag.
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
