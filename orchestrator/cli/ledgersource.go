package cli

import (
	"context"
	"io"
	"os"

	"github.com/outbid-dev/outbid/orchestrator/ledger"
	"github.com/outbid-dev/outbid/orchestrator/server"
)

// openLedger opens a ledger for reading: an export file, or a server's data directory. It reads the ledger of a running
// server through its NATS. Otherwise it starts NATS on the directory, which no other process can use in the meantime.
func (cl *client) openLedger(ctx context.Context, path string) (l ledger.Ledger, done func() error, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, nil, badInput("ledger %w", trimOp(err))
	}
	if info.IsDir() {
		return cl.openLedgerOf(ctx, server.LedgerConfig{Data: path})
	}
	lines := ledger.NewLines(func() (io.ReadCloser, error) { return os.Open(path) })
	switch last, err := lines.Last(ctx); {
	case err != nil:
		return nil, nil, badInput("%s is not a ledger written by 'outbid export --ledger FILE', or it is damaged: %w", path, err)
	case last == 0:
		return nil, nil, badInput("%s is empty: want a file written by 'outbid export --ledger FILE'", path)
	}
	return lines, func() error { return nil }, nil
}

// openLedgerOf opens the ledger of a server.
func (cl *client) openLedgerOf(ctx context.Context, cfg server.LedgerConfig) (l ledger.Ledger, done func() error, err error) {
	if cfg.Logger, err = cl.logger(); err != nil {
		return nil, nil, err
	}
	cfg.NATS.CA = cl.opts.ca
	return server.OpenLedger(ctx, cfg)
}
