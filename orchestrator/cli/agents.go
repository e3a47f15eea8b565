package cli

import (
	"context"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	agents "github.com/outbid-dev/outbid/orchestrator/agent/plugin"
)

// minAgentTimeout is less than any program needs to be woken up on a busy machine.
const minAgentTimeout = 10 * time.Millisecond

// agentFlags are the flags about agents outside the binary.
func agentFlags(cmd *cobra.Command, o *serverOptions) {
	f := cmd.Flags()
	f.StringArrayVar(&o.agents, "agent", nil, "`NAME=COMMAND` of a program that bids for sweeps that say "+
		"agent: {plugin: NAME}; words are split at spaces")
	f.DurationVar(&o.agentTimeout, "agent-timeout", agents.Usual().Deadline,
		"how long such a program may take in a round; then it loses its bid")
}

// agentCommands reads the flags.
func (o *serverOptions) agentCommands() (map[string][]string, error) {
	if o.agentTimeout < minAgentTimeout {
		return nil, badInput("--agent-timeout %s: want %s or more", o.agentTimeout, minAgentTimeout)
	}
	commands := map[string][]string{}
	for _, text := range o.agents {
		name, command, _ := strings.Cut(text, "=")
		words := strings.Fields(command)
		switch {
		case !regexp.MustCompile(`^[a-z]([a-z0-9-]{0,40}[a-z0-9])?$`).MatchString(name):
			return nil, badInput("--agent %q: want NAME=COMMAND, the name of lower-case letters, digits and dashes", text)
		case len(words) == 0:
			return nil, badInput("--agent %q: has no command; want NAME=COMMAND", text)
		case commands[name] != nil:
			return nil, badInput("--agent %s is given twice", name)
		}
		commands[name] = words
	}
	return commands, nil
}

// openAgents starts the agents outside the binary.
func (s *server) openAgents(ctx context.Context) error {
	commands, err := s.opts.agentCommands()
	if err != nil {
		return err
	}
	set := agents.Usual()
	set.Deadline = s.opts.agentTimeout
	// They end with the server, not with ctx: they bid as long as there are rounds.
	if s.agents, err = agents.Open(context.WithoutCancel(ctx), commands, set, s.log); err != nil {
		return badInput("--agent: %w", err)
	}
	s.onClose(func() error {
		s.agents.Close()
		return nil
	})
	return nil
}

// hearAgents lets sweeps whose agent was down bid once it is up.
func (s *server) hearAgents(ctx context.Context) error {
	for {
		select {
		case <-s.agents.Up():
			s.loop.AgentUp()
		case <-ctx.Done():
			return nil
		}
	}
}
