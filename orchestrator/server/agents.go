package server

import (
	"context"

	agents "github.com/outbid-dev/outbid/orchestrator/agent/plugin"
)

// openAgents starts the bidders outside the binary.
func (s *Server) openAgents(ctx context.Context) error {
	set := agents.Usual()
	set.Deadline = s.cfg.AgentTimeout
	var err error
	// They stop with the server, not with ctx, because they bid as long as there are rounds.
	if s.agents, err = agents.Open(context.WithoutCancel(ctx), s.cfg.Agents, set, s.log); err != nil {
		return badField("Agents", "%w", err)
	}
	s.onClose(func() error {
		s.agents.Close()
		return nil
	})
	return nil
}

// watchAgents tells the loop when a bidder is up, so that its sweeps bid again.
func (s *Server) watchAgents(ctx context.Context) error {
	for {
		select {
		case <-s.agents.Up():
			s.loop.AgentUp()
		case <-ctx.Done():
			return nil
		}
	}
}
