package server

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/outbid-dev/outbid/orchestrator/backup"
	"github.com/outbid-dev/outbid/orchestrator/bus"
	"github.com/outbid-dev/outbid/orchestrator/ledger"
	"github.com/outbid-dev/outbid/orchestrator/objects"
)

// BackupConfig locates a cluster to save or to restore.
type BackupConfig struct {
	// LedgerConfig locates the ledger: that of a running server, or in a data directory. Its Store has also the
	// checkpoints; by default Data/store if that exists.
	LedgerConfig
	// Copy saves the store's objects, and not only their keys.
	Copy bool
	// WithoutKeys leaves out the cluster's keys.
	WithoutKeys bool
	// Version is the version of this build.
	Version string
	// Progress is called from time to time with the number of restored batches; nil for never.
	Progress func(seq uint64)
}

// store opens the store, or returns nil if it does not exist.
func (c *BackupConfig) store(ctx context.Context) (objects.Store, error) {
	where := c.Store
	if where == "" {
		where = filepath.Join(c.Data, "store")
		if _, err := os.Stat(where); err != nil {
			return nil, nil //nolint:nilnil,nilerr // the store does not exist
		}
	}
	store, err := objects.Open(ctx, where)
	if err != nil {
		return nil, badField("Store", "%w", err)
	}
	return store, nil
}

// SaveBackup writes a backup of a cluster, which may be running.
func SaveBackup(ctx context.Context, out io.Writer, cfg BackupConfig) (m *backup.Manifest, err error) {
	if cfg.NATS.Keys == "" {
		cfg.NATS.Keys = KeysDir(cfg.Data)
	}
	if cfg.NATS.URL == "" {
		file, running, err := ReadFile(cfg.Data)
		if err != nil {
			return nil, err
		}
		if running {
			cfg.NATS.URL, cfg.NATS.Keys = file.NATS, file.Keys
		}
	}
	nc, done, err := cfg.connect(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, done()) }()
	l, err := ledger.OpenJetStream(ctx, nc, cfg.reading())
	if err == nil {
		err = acceptGivenUp(ctx, nc, l)
	}
	if err != nil {
		return nil, err
	}
	source := backup.Source{Ledger: l, NATS: nc, Keys: cfg.NATS.Keys, Copy: cfg.Copy, Version: cfg.Version, Now: time.Now()}
	if cfg.WithoutKeys {
		source.Keys = ""
	}
	if source.Store, err = cfg.store(ctx); err != nil {
		return nil, err
	}
	return backup.Save(ctx, out, source)
}

// RestoreBackup restores a backup into a separate NATS, which must not have a ledger, or into an empty data directory.
func RestoreBackup(ctx context.Context, f *backup.File, cfg BackupConfig) (err error) {
	if cfg.NATS.URL == "" {
		if there, err := os.ReadDir(filepath.Join(cfg.Data, "nats")); err == nil && len(there) > 0 {
			return badValue("Data", cfg.Data, "contains a ledger: restore into a new directory")
		}
	}
	if cfg.NATS.Keys == "" {
		cfg.NATS.Keys = KeysDir(cfg.Data)
	}
	if there, err := os.ReadDir(cfg.NATS.Keys); f.Keys > 0 && (err != nil || len(there) == 0) {
		if err := f.RestoreKeys(ctx, cfg.NATS.Keys); err != nil {
			return err
		}
	}
	target := backup.Target{Now: time.Now(), Replicas: cfg.NATS.Replicas, Progress: cfg.Progress}
	if f.Copied {
		if cfg.Store == "" {
			cfg.Store = filepath.Join(cfg.Data, "store")
		}
		if target.Store, err = cfg.store(ctx); err != nil {
			return err
		}
	}
	nc, done, err := cfg.connect(ctx)
	if err != nil {
		return err
	}
	target.NATS = nc
	return errors.Join(f.Restore(ctx, target), done())
}

// connect connects to the NATS of the URL, or starts one on the data directory.
func (c *BackupConfig) connect(ctx context.Context) (*nats.Conn, func() error, error) {
	keys, who, err := readKeys(c.NATS.Keys)
	if err != nil {
		return nil, nil, badField("NATS.Keys", "%w", err)
	}
	if c.NATS.URL != "" {
		nc, err := c.NATS.connect(ctx, who, nil, "outbid backup", c.Logger)
		if err != nil {
			return nil, nil, unreachable(err)
		}
		return nc, func() error { nc.Close(); return nil }, nil
	}
	embedded, err := bus.StartServer(bus.ServerConfig{Dir: filepath.Join(c.Data, "nats"), Keys: keys, Logger: c.Logger})
	if err != nil {
		return nil, nil, badValue("Data", c.Data, "%w", err)
	}
	nc, err := NATSConfig{}.connect(ctx, who, embedded, "outbid backup", c.Logger)
	if err != nil {
		return nil, nil, errors.Join(err, embedded.Close())
	}
	return nc, func() error { nc.Close(); return embedded.Close() }, nil
}
