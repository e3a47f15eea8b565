package spec

import (
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// checkAgent checks the name of the agent that bids for the sweep. Whether the server has one of that name is for the
// server to say.
func checkAgent(s *outbidv1.SweepSpec) error {
	switch name := s.GetAgent().GetPlugin(); {
	case s.GetAgent() == nil || isSlug(name):
		return nil
	case name == "":
		return wrong("agent.plugin", "is missing; name an agent that the server was told of by --agent NAME=COMMAND")
	default:
		return wrong("agent.plugin", "%q cannot be an agent; the server knows its agents by lower-case letters, digits and "+
			"dashes", name)
	}
}
