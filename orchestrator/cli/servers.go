package cli

import (
	"strings"

	"github.com/spf13/cobra"
)

// serverCommands returns the commands for servers and workers.
func (a *app) serverCommands() []*cobra.Command {
	return []*cobra.Command{
		a.serveCommand(), a.workerCommand(), a.nodesCommand(), a.doctorCommand(), a.tokenCommand(), a.tlsCommand(),
		a.natsCommand(), a.tenantCommand(), a.secretCommand(),
	}
}

// groupCommand returns a command that only has subcommands.
func groupCommand(cmd *cobra.Command, inner ...*cobra.Command) *cobra.Command {
	cmd.AddCommand(inner...)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return badInput("unknown command %q (see '%s --help')", strings.Join(args, " "), cmd.CommandPath())
		}
		return cmd.Help()
	}
	return cmd
}
