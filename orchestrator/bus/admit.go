package bus

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"
)

// admitUsers configures the server to admit only users signed by the cluster's keys.
func admitUsers(opts *server.Options, cfg ServerConfig) error {
	if cfg.Keys == nil {
		return nil
	}
	operator, err := cfg.Keys.Operator()
	if err != nil {
		return err
	}
	token, err := cfg.Keys.AccountToken()
	if err != nil {
		return err
	}
	system, systemToken, err := cfg.Keys.System()
	if err != nil {
		return err
	}
	accounts := &server.MemAccResolver{}
	for name, token := range map[string]string{cfg.Keys.Account(): token, system: systemToken} {
		if err := accounts.Store(name, token); err != nil {
			return err
		}
	}
	opts.SystemAccount = system
	opts.TrustedOperators = []*jwt.OperatorClaims{operator}
	opts.AccountResolver = accounts
	return checkStreams(filepath.Join(opts.StoreDir, server.JetStreamStoreDir), cfg.Keys.Account())
}

// checkStreams returns an error if the streams in a directory belong to another account. NATS keeps each account's
// streams in a directory of its name, and would otherwise start without streams.
func checkStreams(dir, account string) error {
	names, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("list the streams of the ledger: %w", err)
	}
	if slices.ContainsFunc(names, func(e os.DirEntry) bool { return e.Name() == account }) {
		return nil
	}
	for _, e := range names {
		if strings.HasPrefix(e.Name(), "A") && nkeys.IsValidPublicAccountKey(e.Name()) {
			return fmt.Errorf("the ledger in %s belongs to other keys (account %s instead of %s): give the directory of its "+
				"keys with --keys", dir, e.Name(), account)
		}
	}
	return nil
}

// Revoke disconnects a user and stops admitting it. token is the account token that identity.Keys.Revoke returned.
func (s *Server) Revoke(token string) error {
	claims, err := jwt.DecodeAccountClaims(token)
	if err != nil {
		return fmt.Errorf("revoke a NATS user: %w", err)
	}
	account, err := s.ns.LookupAccount(claims.Subject)
	if err != nil {
		return fmt.Errorf("revoke a NATS user: %w", err)
	}
	if err := s.ns.AccountResolver().Store(claims.Subject, token); err != nil {
		return fmt.Errorf("revoke a NATS user: %w", err)
	}
	s.ns.UpdateAccountClaims(account, claims)
	return nil
}
