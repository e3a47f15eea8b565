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

// globalAccount is where a NATS server without accounts keeps its streams, as Outbid's did before workers had
// identities of their own.
const globalAccount = "$G"

// admit lets in those whom the keys of the cluster have signed, and nobody else.
func admit(opts *server.Options, cfg ServerConfig, log *slog.Logger) error {
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

// ownStreams makes sure that the streams in a directory are those of the account: NATS keeps the streams of each
// account in a directory of its name, and would start with none. Those of a server that had no accounts yet are taken over.
func ownStreams(dir, account string, log *slog.Logger) error {
	taken, err := takeStreams(dir, account)
	if taken {
		log.Info("took over the ledger of an earlier version; that version cannot read it any more", "dir", dir,
			"account", account)
	}
	return err
}

// TakeOverStreams gives the account of a cluster's keys the streams that a NATS of its own, which had no accounts, keeps in a
// store directory. That NATS must not run. It returns false if the account has them already.
func TakeOverStreams(store, account string) (bool, error) {
	dir := filepath.Join(store, server.JetStreamStoreDir)
	names, err := os.ReadDir(dir)
	if err != nil {
		return false, fmt.Errorf("look for the streams of NATS: %w; name the store_dir of its jetstream block", err)
	}
	has := func(name string) bool {
		return slices.ContainsFunc(names, func(e os.DirEntry) bool { return e.Name() == name })
	}
	switch {
	case has(account) && has(globalAccount):
		return false, fmt.Errorf("%s holds streams of these keys (%s) beside those of an earlier version (%s): if a server was "+
			"started since, and has done nothing of worth, move the first away; else the second", dir, account, globalAccount)
	case !has(account) && !has(globalAccount):
		return false, fmt.Errorf("there are no streams of an earlier version in %s", dir)
	}
	return takeStreams(dir, account)
}

// takeStreams renames the directory of the streams of a server without accounts, if there is one and none of the account.
func takeStreams(dir, account string) (bool, error) {
	names, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("look for the streams of the ledger: %w", err)
	}
	has := func(name string) bool {
		return slices.ContainsFunc(names, func(e os.DirEntry) bool { return e.Name() == name })
	}
	if has(account) {
		return false, nil
	}
	for _, e := range names {
		if strings.HasPrefix(e.Name(), "A") && nkeys.IsValidPublicAccountKey(e.Name()) {
			return false, fmt.Errorf("the ledger in %s belongs to other keys (account %s; these are of %s): name the directory of its "+
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

// Revoke cuts off a user that this server lets in, and lets it in no more. The token is the account's, as
// identity.Keys.Revoke returned it.
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
