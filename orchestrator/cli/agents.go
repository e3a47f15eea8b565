package cli

import (
	"strings"

	"github.com/spf13/cobra"

	agents "github.com/outbid-dev/outbid/orchestrator/agent/plugin"
)

// agentFlags adds the flags for bidders outside the binary.
func agentFlags(cmd *cobra.Command, o *serverFlags) {
	f := cmd.Flags()
	f.StringArrayVar(&o.agents, "agent", nil, "`NAME=COMMAND` of a program that bids for sweeps with "+
		"agent: {plugin: NAME}; words are split at spaces")
	f.DurationVar(&o.AgentTimeout, "agent-timeout", agents.Usual().Deadline,
		"time in which such a program must bid in a round, or lose its bid")
}

// agentCommands parses NAME=COMMAND of each --agent.
func agentCommands(flags []string) (map[string][]string, error) {
	commands := map[string][]string{}
	for _, text := range flags {
		name, command, ok := strings.Cut(text, "=")
		if !ok {
			return nil, badInput("--agent %q: want NAME=COMMAND", text)
		}
		if commands[name] != nil {
			return nil, badInput("--agent %s is given twice", name)
		}
		commands[name] = append([]string{}, strings.Fields(command)...)
	}
	return commands, nil
}
