package server

import (
	"context"

	agents "github.com/outbid-dev/outbid/orchestrator/agent/plugin"
)

// openAgents starts the agents outside the binary.
func (s *Server) openAgents(ctx context.Context) error {
	set := agents.Usual()
	set.Deadline = s.cfg.AgentTimeout
	var err error
	// They end with the server, not with ctx: they bid as long as there are rounds.
	if s.agents, err = agents.Open(context.WithoutCancel(ctx), s.cfg.Agents, set, s.log); err != nil {
		return badField("Agents", "%w", err)
	}
	s.onClose(func() error {
		s.agents.Close()
		return nil
	})
	return nil
}

// hearAgents lets sweeps whose agent was down bid once it is up.
func (s *Server) hearAgents(ctx context.Context) error {
	for {
		select {
		case <-s.agents.Up():
			s.loop.AgentUp()
		case <-ctx.Done():
			return nil
		}
	}
}
