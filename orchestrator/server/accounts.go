package server

import (
	"context"

	"github.com/outbid-dev/outbid/orchestrator/accounts"
)

// openAccounts opens the API tokens and gives them to the API, also after each change.
func (s *Server) openAccounts(ctx context.Context) (err error) {
	cfg := accounts.Config{Replicas: s.cfg.NATS.Replicas, Now: s.cfg.Now, Logger: s.log}
	if s.tokens != nil {
		cfg.Changed = s.tokens.Issue
	}
	if s.accounts, err = accounts.Open(ctx, s.nc, cfg); err != nil {
		return err
	}
	s.onClose(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		s.accounts.StoreUses(ctx)
		return nil
	})
	return nil
}
