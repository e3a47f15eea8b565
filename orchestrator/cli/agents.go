package cli

import (
	"strings"

	"github.com/spf13/cobra"

	agents "github.com/outbid-dev/outbid/orchestrator/agent/plugin"
)

// agentFlags are the flags about agents outside the binary.
func agentFlags(cmd *cobra.Command, o *serverFlags) {
	f := cmd.Flags()
	f.StringArrayVar(&o.agents, "agent", nil, "`NAME=COMMAND` of a program that bids for sweeps that say "+
		"agent: {plugin: NAME}; words are split at spaces")
	f.DurationVar(&o.AgentTimeout, "agent-timeout", agents.Usual().Deadline,
		"how long such a program may take in a round; then it loses its bid")
}

// agentCommands reads NAME=COMMAND of each --agent.
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
