package cli

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/outbid-dev/outbid/orchestrator/bus"
	"github.com/outbid-dev/outbid/orchestrator/identity"
	"github.com/outbid-dev/outbid/orchestrator/ledger"
)

// openLedger opens a ledger for reading: an export file, or the data directory of a server. If that server runs, its
// ledger is read through it; if not, NATS is started on the directory, which nobody else can use meanwhile.
func (a *app) openLedger(ctx context.Context, path string) (l ledger.Ledger, done func() error, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, nil, badInput("ledger %w", trimOp(err))
	}
	if info.IsDir() {
		return a.openLedgerDir(ctx, path)
	}
	lines := ledger.NewLines(func() (io.ReadCloser, error) { return os.Open(path) })
	switch last, err := lines.Last(ctx); {
	case err != nil:
		return nil, nil, badInput("%s is no ledger that 'outbid export --ledger FILE' wrote, or it is damaged: %w", path, err)
	case last == 0:
		return nil, nil, badInput("%s is empty: want what 'outbid export --ledger FILE' wrote", path)
	}
	return lines, func() error { return nil }, nil
}

func (a *app) openLedgerDir(ctx context.Context, dir string) (ledger.Ledger, func() error, error) {
	file, running, err := readServerFile(serverFilePath(dir))
	if err != nil {
		return nil, nil, err
	}
	if running {
		return a.openLedgerNATS(ctx, natsOptions{url: file.NATS, keys: file.Keys})
	}
	if _, err := os.Stat(filepath.Join(dir, "nats", "store")); errors.Is(err, fs.ErrNotExist) {
		return nil, nil, badInput("%s holds no ledger: want a server's data directory, or a file that "+
			"'outbid export --ledger FILE' wrote; that of a server with a NATS of its own is read with "+
			"'outbid export --ledger FILE --nats URL'", dir)
	}
	log, err := a.logger()
	if err != nil {
		return nil, nil, err
	}
	keys, who, err := readKeys(keysDir(dir))
	if err != nil {
		return nil, nil, err
	}
	embedded, err := bus.StartServer(bus.ServerConfig{Dir: filepath.Join(dir, "nats"), Keys: keys, Logger: log})
	if err != nil {
		return nil, nil, badInput("%s: %w", dir, err)
	}
	l, done, err := a.readLedger(ctx, natsOptions{}, who, embedded)
	if err != nil {
		return nil, nil, errors.Join(err, embedded.Close())
	}
	return l, func() error { return errors.Join(done(), embedded.Close()) }, nil
}

// openLedgerNATS opens the ledger in a NATS that runs, whether a server uses it at the time or not.
func (a *app) openLedgerNATS(ctx context.Context, nats natsOptions) (ledger.Ledger, func() error, error) {
	_, who, err := readKeys(nats.keys)
	if err != nil {
		return nil, nil, badInput("--keys: %w", err)
	}
	return a.readLedger(ctx, nats, who, nil)
}

func (a *app) readLedger(ctx context.Context, nats natsOptions, who *identity.Credentials, embedded *bus.Server) (
	ledger.Ledger, func() error, error,
) {
	log, err := a.logger()
	if err != nil {
		return nil, nil, err
	}
	nc, err := nats.connect(ctx, who, embedded, "outbid reads the ledger", a.opts.ca, log)
	if err != nil {
		return nil, nil, unreachable(err)
	}
	l, err := ledger.OpenJetStream(ctx, nc, ledger.Config{Logger: log, MustExist: true})
	if err != nil {
		nc.Close()
		return nil, nil, err
	}
	return l, func() error { nc.Close(); return nil }, nil
}
