package cli

import (
	"strings"

	"github.com/spf13/cobra"

	bidders "github.com/outbid-dev/outbid/orchestrator/bidder/plugin"
)

// bidderFlags adds the flags for bidders outside the binary.
func (sv *serverCommands) bidderFlags(cmd *cobra.Command, o *serverFlags) {
	f := cmd.Flags()
	f.StringArrayVar(&o.bidders, "bidder", nil, "`NAME=COMMAND` of a program that bids for sweeps with "+
		"agent: {plugin: NAME}; words are split at spaces")
	f.DurationVar(&o.BidderTimeout, "bidder-timeout", bidders.Usual().Deadline,
		"time in which such a program must bid in a round, or lose its bid")
	sv.renamedFlag(f, "agent", "bidder")
	sv.renamedFlag(f, "agent-timeout", "bidder-timeout")
}

// bidderCommands parses NAME=COMMAND of each --bidder.
func bidderCommands(flags []string) (map[string][]string, error) {
	commands := map[string][]string{}
	for _, text := range flags {
		name, command, ok := strings.Cut(text, "=")
		if !ok {
			return nil, badInput("--bidder %q: want NAME=COMMAND", text)
		}
		if commands[name] != nil {
			return nil, badInput("--bidder %s is given twice", name)
		}
		commands[name] = append([]string{}, strings.Fields(command)...)
	}
	return commands, nil
}
