package api

import (
	"context"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// The default and the maximum number of rounds in an answer.
const (
	defaultRounds = 20
	maxRounds     = 1000
)

// roundService has the calls about the rounds of the policy and its prices.
type roundService struct{ control Control }

// GetRound implements the service.
func (s *roundService) GetRound(ctx context.Context, req *outbidv1.GetRoundRequest) (*outbidv1.GetRoundResponse, error) {
	r, err := s.control.Round(ctx, req.GetRound())
	if err != nil {
		return nil, err
	}
	s.redact(ctx, r)
	return &outbidv1.GetRoundResponse{Round: r}, nil
}

// ListRounds implements the service.
func (s *roundService) ListRounds(ctx context.Context, req *outbidv1.ListRoundsRequest) (*outbidv1.ListRoundsResponse, error) {
	limit := int(req.GetLimit())
	switch {
	case limit < 0 || limit > maxRounds:
		return nil, fieldError("limit", "%d: want 0 to %d", limit, maxRounds)
	case limit == 0:
		limit = defaultRounds
	}
	rounds, err := s.control.Rounds(ctx, req.GetBefore(), req.GetSweep(), limit)
	if err != nil {
		return nil, err
	}
	for _, r := range rounds {
		s.redact(ctx, r)
	}
	return &outbidv1.ListRoundsResponse{Rounds: rounds}, nil
}

// GetPrices implements the service.
func (s *roundService) GetPrices(context.Context, *outbidv1.GetPricesRequest) (*outbidv1.GetPricesResponse, error) {
	return &outbidv1.GetPricesResponse{Policy: s.control.Info().GetPolicy(), Prices: s.control.Prices()}, nil
}

// redact removes the sweeps of other tenants and their bids.
func (s *roundService) redact(ctx context.Context, r *outbidv1.Round) {
	hidden := hiddenFrom(caller(ctx), s.control)
	for _, d := range r.GetDecisions() {
		if hidden(d.GetSweep()) {
			d.Sweep, d.Reason = "", ""
		}
	}
	for _, b := range r.GetAuction().GetBidders() {
		if hidden(b.GetSweep()) {
			b.Sweep, b.Bids, b.Refused, b.Why = "", nil, "", ""
		}
	}
}

// hiddenFrom returns a function that reports whether a sweep must be hidden from the caller, because another tenant owns
// it or it was deleted.
func hiddenFrom(who Principal, control Control) func(sweep string) bool {
	return func(id string) bool {
		sweep, err := control.Sweep(id)
		return err != nil || !who.owns(tenantOf(sweep.GetSpec()))
	}
}
