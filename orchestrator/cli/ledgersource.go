package cli

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/outbid-dev/outbid/orchestrator/bus"
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
	if _, err := os.Stat(filepath.Join(dir, "nats", "store")); errors.Is(err, fs.ErrNotExist) {
		return nil, nil, badInput("%s holds no ledger: want a server's data directory, or a file that "+
			"'outbid export --ledger FILE' wrote", dir)
	}
	log, err := a.logger()
	if err != nil {
		return nil, nil, err
	}
	file, running, err := readServerFile(serverFilePath(dir))
	if err != nil {
		return nil, nil, err
	}
	from := keysDir(dir)
	if running {
		from = file.Keys
	}
	keys, who, err := readKeys(from)
	if err != nil {
		return nil, nil, err
	}
	var embedded *bus.Server
	done := func() error { return nil }
	if !running {
		embedded, err = bus.StartServer(bus.ServerConfig{Dir: filepath.Join(dir, "nats"), Keys: keys, Logger: log})
		if err != nil {
			return nil, nil, badInput("%s: %w", dir, err)
		}
		done = embedded.Close
	}
	nc, err := natsOptions{url: file.NATS}.connect(ctx, who, embedded, "outbid replay", a.opts.ca, log)
	if err != nil {
		return nil, nil, errors.Join(err, done())
	}
	both := func() error {
		nc.Close()
		return done()
	}
	l, err := ledger.OpenJetStream(ctx, nc, ledger.Config{Logger: log})
	if err != nil {
		return nil, nil, errors.Join(err, both())
	}
	return l, both, nil
}
