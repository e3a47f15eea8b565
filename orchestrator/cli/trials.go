package cli

import (
	"github.com/spf13/cobra"

	"github.com/outbid-dev/outbid/orchestrator/server"
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
	f.BoolVar(&o.Trust, "trust-trials", false, "run what people with tokens submit as the worker's own user: they can read "+
		"all that it can, its secrets too")
	_ = cmd.MarkFlagDirname("trial-dir")
}
