package labcli

import (
	"github.com/spf13/cobra"

	"github.com/outbid-dev/outbid/orchestrator/lab/suggest"
)

func suggestCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "suggest",
		Short: "Answer requests for a sampler's configurations, in lines of JSON on the standard streams",
		Long: `Suggest lets another program run a built-in sampler without a server. It reads a request a line: {"start": {"sampler":
NAME, "seed": N, "spec": SPEC}}, {"ask": true}, which it answers with a configuration, and {"tell": {"trial": N, "cost":
COST}}.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return suggest.Serve(cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
}
