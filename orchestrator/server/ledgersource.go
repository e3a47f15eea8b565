package server

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/outbid-dev/outbid/orchestrator/bus"
	"github.com/outbid-dev/outbid/orchestrator/identity"
	"github.com/outbid-dev/outbid/orchestrator/ledger"
)

// LedgerConfig locates the ledger of a server.
type LedgerConfig struct {
	// Data is that server's data directory.
	Data string
	// Store locates the archive of the ledger; by default where its server recorded it.
	Store string
	// NATS locates the ledger if it is not in Data. Its Keys are by default those of Data.
	NATS NATSConfig
	// Logger receives log messages.
	Logger *slog.Logger
}

// reading returns the configuration of a ledger that is only read.
func (cfg LedgerConfig) reading() ledger.Config {
	return ledger.Config{Logger: cfg.Logger, MustExist: true, OpenStore: findArchive(cfg.Data, cfg.Store)}
}

// OpenLedger opens the ledger of a server for reading; done closes it. It reads the ledger of a running server through
// its NATS. Otherwise it starts NATS on the data directory, which no other process can use in the meantime.
func OpenLedger(ctx context.Context, cfg LedgerConfig) (l ledger.Ledger, done func() error, err error) {
	if cfg.NATS.URL != "" {
		if cfg.NATS.Keys == "" {
			cfg.NATS.Keys = KeysDir(cfg.Data)
		}
		return openLedgerNATS(ctx, cfg)
	}
	file, running, err := ReadFile(cfg.Data)
	if err != nil {
		return nil, nil, err
	}
	if running {
		cfg.NATS.URL, cfg.NATS.Keys = file.NATS, file.Keys
		return openLedgerNATS(ctx, cfg)
	}
	return openLedgerDir(ctx, cfg)
}

// openLedgerDir starts NATS on the data directory of a server that is not running.
func openLedgerDir(ctx context.Context, cfg LedgerConfig) (ledger.Ledger, func() error, error) {
	dir := cfg.Data
	if _, err := os.Stat(filepath.Join(dir, "nats", "store")); errors.Is(err, fs.ErrNotExist) {
		return nil, nil, badValue("Data", dir, "does not contain a ledger: want a server's data directory, or a file that "+
			"'outbid export --ledger FILE' wrote; read the ledger of a server with a separate NATS with "+
			"'outbid export --ledger FILE --nats URL'")
	}
	keys, who, err := readKeys(KeysDir(dir))
	if err != nil {
		return nil, nil, err
	}
	embedded, err := bus.StartServer(bus.ServerConfig{Dir: filepath.Join(dir, "nats"), Keys: keys, Logger: cfg.Logger})
	if err != nil {
		return nil, nil, badValue("Data", dir, "%w", err)
	}
	cfg.NATS = NATSConfig{}
	l, done, err := readLedger(ctx, cfg, who, embedded)
	if err != nil {
		return nil, nil, errors.Join(err, embedded.Close())
	}
	return l, func() error { return errors.Join(done(), embedded.Close()) }, nil
}

// openLedgerNATS opens the ledger in a running NATS, which a server may use at the same time.
func openLedgerNATS(ctx context.Context, cfg LedgerConfig) (ledger.Ledger, func() error, error) {
	_, who, err := readKeys(cfg.NATS.Keys)
	if err != nil {
		return nil, nil, badField("NATS.Keys", "%w", err)
	}
	return readLedger(ctx, cfg, who, nil)
}

func readLedger(ctx context.Context, cfg LedgerConfig, who *identity.Credentials, embedded *bus.Server) (ledger.Ledger, func() error, error) {
	nc, err := cfg.NATS.connect(ctx, who, embedded, "outbid reads the ledger", cfg.Logger)
	if err != nil {
		return nil, nil, unreachable(err)
	}
	l, err := ledger.OpenJetStream(ctx, nc, cfg.reading())
	if err == nil {
		err = acceptGivenUp(ctx, nc, l)
	}
	if err != nil {
		nc.Close()
		return nil, nil, err
	}
	return l, func() error { nc.Close(); return nil }, nil
}
