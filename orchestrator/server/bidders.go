package server

import (
	"context"

	bidders "github.com/outbid-dev/outbid/orchestrator/bidder/plugin"
)

// openBidders starts the bidders outside the binary.
func (s *Server) openBidders(ctx context.Context) error {
	set := bidders.Usual()
	set.Deadline = s.cfg.BidderTimeout
	var err error
	// They stop with the server, not with ctx, because they bid as long as there are rounds.
	if s.bidders, err = bidders.Open(context.WithoutCancel(ctx), s.cfg.Bidders, set, s.log); err != nil {
		return badField("Bidders", "%w", err)
	}
	s.onClose(func() error {
		s.bidders.Close()
		return nil
	})
	return nil
}

// watchBidders tells the loop when a bidder is up, so that its sweeps bid again.
func (s *Server) watchBidders(ctx context.Context) error {
	for {
		select {
		case <-s.bidders.Up():
			s.loop.BidderUp()
		case <-ctx.Done():
			return nil
		}
	}
}
