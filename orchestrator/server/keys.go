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

// KeysDir is where a server keeps the cluster's keys if nothing else is said.
func KeysDir(data string) string { return filepath.Join(data, "keys") }

// readKeys reads the cluster's keys and makes a user of them that may do everything; nil for a directory of before there
// were keys.
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

// workerHere makes this machine's worker known to a server whose keys it can read, which says that it is the same user
// on the same machine. It keeps what it made beside the keys, for the next start.
func workerHere(ctx context.Context, nats NATSConfig, node string, log *slog.Logger) (*identity.Credentials, error) {
	keys, admin, err := readKeys(nats.Keys)
	if err != nil {
		return nil, badField("NATS.Keys", "%w", err)
	}
	if keys == nil {
		return nil, badValue("NATS.Keys", nats.Keys, "there are no keys of a cluster; on the server's machine they are in DATA/keys, "+
			"elsewhere join with 'outbid worker join'")
	}
	if err := bus.CheckToken("node", node); err != nil {
		return nil, badField("Name", "%w", err)
	}
	c, err := keptHere(keys, node, time.Now())
	if err != nil {
		return nil, err
	}
	nc, err := nats.connect(ctx, admin, nil, "worker "+node+" joins", log)
	if err != nil {
		return nil, unreachable(err)
	}
	defer nc.Close()
	known, err := bus.OpenWorkers(ctx, nc, bus.WorkersConfig{Logger: log})
	if err != nil {
		return nil, err
	}
	if known.Key(node) != c.Public() {
		err = known.Add(ctx, node, c.Public(), time.Now())
	}
	return c, errors.Join(err, known.Close())
}

// keptHere reads the credentials of a worker that ran here before, or makes some.
func keptHere(keys *identity.Keys, node string, now time.Time) (*identity.Credentials, error) {
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
