package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/bus"
	"github.com/outbid-dev/outbid/orchestrator/identity"
)

// KeysDir returns the default directory of the cluster's keys.
func KeysDir(data string) string { return filepath.Join(data, "keys") }

// readKeys reads the cluster's keys, and creates credentials for a user with all permissions from them. It returns nil
// if the directory does not have keys.
func readKeys(dir string) (*identity.Keys, *identity.Credentials, error) {
	keys, err := identity.OpenKeys(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	who, err := keys.Orchestrator()
	return keys, who, err
}

// registerLocalWorker registers this machine's worker with a server whose keys it can read, because then it is the same user on
// the same machine. It stores the credentials with the keys for the next start.
func registerLocalWorker(ctx context.Context, nats NATSConfig, node string, log *slog.Logger) (*identity.Credentials, error) {
	keys, admin, err := readKeys(nats.Keys)
	if err != nil {
		return nil, badField("NATS.Keys", "%w", err)
	}
	if keys == nil {
		return nil, badValue("NATS.Keys", nats.Keys, "does not contain a cluster's keys; on the server's machine they are in DATA/keys, "+
			"elsewhere join with 'outbid worker join'")
	}
	if err := bus.CheckToken("node", node); err != nil {
		return nil, badField("Name", "%w", err)
	}
	c, err := loadOrIssueWorker(keys, node, time.Now())
	if err != nil {
		return nil, err
	}
	nc, err := nats.connect(ctx, admin, nil, "worker "+node+" joins", log)
	if err != nil {
		return nil, unreachable(err)
	}
	defer nc.Close()
	return c, bus.AddWorker(ctx, nc, node, c.Public(), time.Now())
}

// loadOrIssueWorker reads the stored credentials of a worker, or creates new ones.
func loadOrIssueWorker(keys *identity.Keys, node string, now time.Time) (*identity.Credentials, error) {
	dir := filepath.Join(keys.Dir(), "workers", node)
	c, err := identity.ReadCredentials(dir)
	if err == nil && c.Node == node && c.OrdersKey == keys.Orders().Public() {
		token, err := keys.IssueWorker(node, c.Public(), now)
		if err != nil {
			return nil, err
		}
		return c, c.Renew(token)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("credentials of worker %s: %w", node, err)
	}
	if c, err = keys.Worker(node, now); err != nil {
		return nil, err
	}
	return c, c.Write(dir, nil)
}
