// Package labcli is the command line of outbid-lab: that of the product, with the lab's policies, more flags of the command
// sim, and studies.
package labcli

import (
	"github.com/spf13/cobra"

	"github.com/outbid-dev/outbid/orchestrator/cli"
	"github.com/outbid-dev/outbid/orchestrator/lab"
	"github.com/outbid-dev/outbid/orchestrator/sim/experiment"
)

// Edition returns the edition of the program outbid-lab, which runs policies on traces with simulate.
func Edition(simulate experiment.Engine) cli.Edition {
	return cli.Edition{
		Name: "outbid-lab", Policies: lab.Policies(), Simulate: simulate, Sim: simExtension,
		Commands: func() []*cobra.Command {
			return []*cobra.Command{studyCommand(simulate), suggestCommand(), loadCommand()}
		},
	}
}
