package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/outbid-dev/outbid/orchestrator/ledger"
	"github.com/outbid-dev/outbid/orchestrator/ledger/archive"
	"github.com/outbid-dev/outbid/orchestrator/objects"
)

const (
	// DefaultLedgerKeep is how long the ledger is kept in NATS by default.
	DefaultLedgerKeep = 30 * 24 * time.Hour
	// MinLedgerKeep is the shortest valid time.
	MinLedgerKeep = time.Minute
	// KeepLedger keeps the whole ledger in NATS.
	KeepLedger time.Duration = -1
	// archiveEvery is the longest time between two attempts to archive.
	archiveEvery = 10 * time.Minute
	// segmentsKept is about the number of segments that the time to keep is divided into.
	segmentsKept = 4
)

// ledgerArchiver moves old parts of the ledger to the store.
type ledgerArchiver struct {
	record interface {
		Archive(ctx context.Context, cfg ledger.ArchiveConfig) (ledger.Archived, error)
	}
	// location is that of the store, as readers need it.
	location string
	keep     time.Duration
	now      func() time.Time
	log      *slog.Logger
	problem  string
}

// run archives until ctx ends.
func (a *ledgerArchiver) run(ctx context.Context) error {
	tick := time.NewTicker(min(archiveEvery, a.keep/segmentsKept))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			a.archive(ctx)
		}
	}
}

// archive moves what is old enough. After an error the next call tries again.
func (a *ledgerArchiver) archive(ctx context.Context) {
	moved, err := a.record.Archive(ctx, ledger.ArchiveConfig{Location: a.location, Before: a.now().Add(-a.keep)})
	if moved.Segments > 0 {
		a.log.Info("old batches of the ledger were moved to the store", "from", moved.From, "to", moved.To, "size", humanize.IBytes(uint64(moved.Bytes)))
	}
	switch {
	case err == nil || ctx.Err() != nil:
		a.problem = ""
	case err.Error() != a.problem:
		a.problem = err.Error()
		a.log.Warn("old batches of the ledger cannot be moved to the store and stay in NATS; retrying", "err", err)
	}
}

// newLedgerArchiver returns the archiver of a server whose LedgerKeep is not KeepLedger.
func newLedgerArchiver(cfg *Config, record *ledger.JetStream, now func() time.Time) *ledgerArchiver {
	return &ledgerArchiver{record: record, location: storeLocation(cfg.Store), keep: cfg.LedgerKeep, now: now, log: cfg.Logger}
}

// ledger returns the configuration of the ledger that a server writes.
func (c *Config) ledger(open storeOpener) ledger.Config {
	return ledger.Config{Replicas: c.NATS.Replicas, Logger: c.Logger, OpenStore: open, SegmentAge: max(c.LedgerKeep, 0) / segmentsKept}
}

// storeOpener opens the store of the ledger's archive: see ledger.Config.
type storeOpener = func(ctx context.Context, location string) (archive.Store, error)

// archiveStore returns the server's store, wherever it was when a segment was archived.
func (a *storeAccess) archiveStore(context.Context, string) (archive.Store, error) {
	return a.store, nil
}

// storeLocation returns a store's location for other processes of this machine: a directory's absolute path, or a URL.
func storeLocation(store string) string {
	if store == "" || strings.Contains(store, "://") {
		return store
	}
	if path, err := filepath.Abs(store); err == nil {
		return path
	}
	return store
}

// findArchive returns a function that opens the archive of a ledger for reading: in store if it is given, else where
// its server recorded it. data is the server's data directory.
func findArchive(data, store string) storeOpener {
	return func(ctx context.Context, location string) (archive.Store, error) {
		switch {
		case store != "":
			location = store
		case location == "":
			location = filepath.Join(data, "store")
		}
		if !strings.Contains(location, "://") { // do not create it
			if _, err := os.Stat(location); errors.Is(err, os.ErrNotExist) {
				return nil, badField("Store", "%s does not exist, but contains the oldest batches of the ledger: give the store of the server", location)
			}
		}
		found, err := objects.Open(ctx, location)
		if err != nil {
			return nil, fmt.Errorf("the store with the oldest batches of the ledger: %w", err)
		}
		return found, nil
	}
}
