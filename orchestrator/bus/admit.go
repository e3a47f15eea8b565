package bus

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"
)

// globalAccount is the account of streams in a NATS server without accounts. Earlier versions of Outbid used it, before
// workers had identities.
const globalAccount = "$G"

// admitUsers configures the server to admit only users signed by the cluster's keys.
func admitUsers(opts *server.Options, cfg ServerConfig, log *slog.Logger) error {
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
	return ownStreams(filepath.Join(opts.StoreDir, server.JetStreamStoreDir), cfg.Keys.Account(), log)
}

// ownStreams makes sure that the streams in a directory belong to the account. NATS keeps each account's streams in a
// directory of its name, and would otherwise start without streams. It transfers the streams of a server without
// accounts.
func ownStreams(dir, account string, log *slog.Logger) error {
	taken, err := takeStreams(dir, account)
	if taken {
		log.Info("took over the ledger of an earlier version; that version can no longer read it", "dir", dir,
			"account", account)
	}
	return err
}

// TakeOverStreams transfers the streams of a separate NATS server without accounts, in a store directory, to the
// account of a cluster's keys. That server must not be running. It returns false if the account already has them.
func TakeOverStreams(store, account string) (bool, error) {
	dir := filepath.Join(store, server.JetStreamStoreDir)
	names, err := os.ReadDir(dir)
	if err != nil {
		return false, fmt.Errorf("list the streams of NATS: %w; give the store_dir of its jetstream block", err)
	}
	has := func(name string) bool {
		return slices.ContainsFunc(names, func(e os.DirEntry) bool { return e.Name() == name })
	}
	switch {
	case has(account) && has(globalAccount):
		return false, fmt.Errorf("%s contains streams of these keys (%s) and streams of an earlier version (%s): if a server was "+
			"started since then and its data is not needed, move the first away; otherwise the second", dir, account, globalAccount)
	case !has(account) && !has(globalAccount):
		return false, fmt.Errorf("there are no streams of an earlier version in %s", dir)
	}
	return takeStreams(dir, account)
}

// takeStreams renames the stream directory of a server without accounts, if it exists and the account does not have
// streams.
func takeStreams(dir, account string) (bool, error) {
	names, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("list the streams of the ledger: %w", err)
	}
	has := func(name string) bool {
		return slices.ContainsFunc(names, func(e os.DirEntry) bool { return e.Name() == name })
	}
	if has(account) {
		return false, nil
	}
	for _, e := range names {
		if strings.HasPrefix(e.Name(), "A") && nkeys.IsValidPublicAccountKey(e.Name()) {
			return false, fmt.Errorf("the ledger in %s belongs to other keys (account %s instead of %s): give the directory of its "+
				"keys with --keys", dir, e.Name(), account)
		}
	}
	if !has(globalAccount) {
		return false, nil
	}
	if err := os.Rename(filepath.Join(dir, globalAccount), filepath.Join(dir, account)); err != nil {
		return false, fmt.Errorf("take over the ledger of an earlier version: %w", err)
	}
	return true, nil
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
