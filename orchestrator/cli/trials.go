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
		"function's trial fails beyond that, and a program's continues without that checkpoint")
	o.ScratchBytes, o.DiskMargin = worker.DefaultScratchBytes, worker.DefaultDiskMargin
	f.Var(&boundFlag{&o.ScratchBytes, true}, "scratch-bytes", "`BYTES` that the files of one trial may take on the disk, or none; a trial with more fails")
	f.Var(&boundFlag{&o.DiskMargin, true}, "disk-margin", "`BYTES` of the disk of trials' files that stay free, or none: with less the worker takes no "+
		"new trials, and the trial fails whose files take the most")
	f.BoolVar(&o.NoDiskHold, "no-disk-hold", false, "never hold up a trial that writes so much that others on the node wait for the disk")
	o.Processes, o.Files = confine.DefaultProcesses, confine.DefaultFiles
	f.Var(&boundFlag{&o.Processes, false}, "trial-processes", "`N` processes and threads that one trial may have, or none for no bound")
	f.Var(&boundFlag{&o.Files, false}, "trial-files", "`N` files that each process of a trial may have open, and the worker too, or none for no bound")
	f.StringVar(&o.Network, "trial-network", confine.NetworkHost, "`NETWORK` of trials: host, or none for nothing but a loopback")
	f.BoolVar(&o.Trust, "trust-trials", false, "run what people with tokens submit as the worker's own user: they can read "+
		"all that it can, its secrets too")
	_ = cmd.MarkFlagDirname("trial-dir")
}

// bytesFlag is the value of a flag that is an amount of bytes, such as 512MiB.
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

// boundFlag is the value of a flag that is an amount, of bytes or a number, or none.
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
