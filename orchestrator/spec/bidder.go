package spec

import (
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// checkBidder checks the name of the bidder for the sweep. The server checks later whether it has a bidder with that
// name.
func checkBidder(s *outbidv1.SweepSpec) error {
	switch name := s.GetAgent().GetPlugin(); {
	case s.GetAgent() == nil || isSlug(name):
		return nil
	case name == "":
		return wrong("agent.plugin", "is missing; name a bidder that the server was started with (--bidder NAME=COMMAND)")
	default:
		return wrong("agent.plugin", "%q is not a valid name of a bidder; use lower-case letters, digits and "+
			"dashes", name)
	}
}
