package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"syscall"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/nats-io/nats.go"
	"golang.org/x/sys/unix"

	"github.com/outbid-dev/outbid/orchestrator/bus"
	"github.com/outbid-dev/outbid/orchestrator/identity"
	"github.com/outbid-dev/outbid/orchestrator/ledger"
)

// natsLink is a server's connection to NATS, and the NATS of its process if it runs one.
type natsLink struct {
	*closers
	cfg  *Config
	log  *slog.Logger
	keys *identity.Keys
	// embedded is the NATS in this process, or nil.
	embedded *bus.Server
	natsURL  string
	nc       *nats.Conn
}

// open starts NATS in this process, or connects to the configured one.
func (n *natsLink) open(ctx context.Context, certs *tls.Config) (err error) {
	o := n.cfg.NATS
	if o.URL == "" {
		if err := n.startNATS(certs); err != nil {
			return err
		}
	} else {
		n.natsURL = bus.RedactURLs(o.URL)
	}
	who, err := n.keys.Orchestrator()
	if err != nil {
		return err
	}
	if err := n.connect(ctx, who); err != nil {
		return err
	}
	n.onClose(func() error {
		if !n.nc.IsConnected() { // not connected: nothing to drain
			n.nc.Close()
			return nil
		}
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		if err := bus.Drain(ctx, n.nc); err != nil {
			n.log.Warn("the connection to NATS was not closed in order", "err", err)
		}
		return nil
	})
	return nil
}

// connect connects to NATS. It waits for a separate NATS that is not there yet.
func (n *natsLink) connect(ctx context.Context, who *identity.Credentials) (err error) {
	waits := natsWait{log: n.log}
	for {
		n.nc, err = n.cfg.NATS.connect(ctx, who, n.embedded, "orchestrator "+n.cfg.Name, n.log)
		if err == nil || n.embedded != nil || !bus.MayConnectLater(err) {
			waits.over()
			return err
		}
		waits.tell(err.Error())
		if pause(ctx, natsAgain) != nil {
			return errors.Join(ctx.Err(), err)
		}
	}
}

// maxPayload returns the maximum size of a NATS message in bytes.
func (n *natsLink) maxPayload() int { return int(n.nc.MaxPayload()) }

// startNATS starts NATS in this process.
func (n *natsLink) startNATS(certs *tls.Config) error {
	cfg := bus.ServerConfig{
		Dir: filepath.Join(n.cfg.Data, "nats"), Host: n.cfg.NATS.host, Port: n.cfg.NATS.port, Keys: n.keys,
		TLS: certs, Logger: n.log.With("part", "nats"),
	}
	var err error
	n.embedded, err = bus.StartServer(cfg)
	if n.cfg.NATS.AnyPort && errors.Is(err, syscall.EADDRINUSE) {
		port := cfg.Port
		cfg.Port = 0
		if n.embedded, err = bus.StartServer(cfg); err == nil {
			n.cfg.note("port %d is taken, so NATS is at %s; to use a running NATS, give --nats URL", port,
				n.embedded.URL())
		}
	}
	if errors.Is(err, bus.ErrInUse) {
		return n.inUse(err)
	}
	if err != nil {
		return badField("NATS.Listen", "%w", err)
	}
	n.onClose(n.embedded.Close)
	n.natsURL = n.embedded.URL()
	return nil
}

// inUse returns an error that names the server that uses the data directory.
func (n *natsLink) inUse(err error) error {
	if f, running, readErr := ReadFile(n.cfg.Data); readErr == nil && running {
		return badValue("Data", n.cfg.Data, "in use by the server of process %d, whose API is at %s: stop that one first, or "+
			"give another directory", f.PID, f.API)
	}
	return badField("Data", "%w: stop that one first, or give another directory", err)
}

// natsPatience is how long NATS may take to describe its state.
const natsPatience = 3 * time.Second

// diskLow is the free space below which JetStream may have failed, because it writes blocks of some MiB.
const diskLow = 16 << 20

// whyNoWrites returns why NATS does not accept writes, given its last answer, or "" if no problem is known.
func (n *natsLink) whyNoWrites(cause error) string {
	const mend = "free space there, restart NATS (JetStream does not write until then), then this server: nothing acknowledged is lost"
	if n.embedded != nil {
		if free, err := diskFree(n.cfg.Data); err == nil && free < diskLow {
			return fmt.Sprintf("the disk of %s is full (%s are free): free space there and restart this server: nothing "+
				"acknowledged is lost", n.cfg.Data, humanize.IBytes(free))
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), natsPatience)
	defer cancel()
	if err := n.nc.FlushWithContext(ctx); err != nil {
		return fmt.Sprintf("NATS at %s does not answer", n.natsURL)
	}
	if bus.StorageRefused(cause) { // it may accept some later
		return fmt.Sprintf("NATS at %s answers, but its JetStream does not accept writes (%v): usually its disk is full; %s", n.natsURL,
			cause, mend)
	}
	if err := bus.CheckWrites(ctx, n.nc); err != nil {
		return fmt.Sprintf("NATS at %s answers, but its JetStream does not accept writes (%v): usually its disk is full; %s", n.natsURL,
			err, mend)
	}
	return ""
}

// diskFree returns the free bytes on the disk of a directory.
func diskFree(dir string) (uint64, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return 0, err
	}
	return fs.Bavail * uint64(fs.Bsize), nil
}

// damaged adds the options to an error about a damaged ledger, and returns other errors unchanged.
func (n *natsLink) damaged(err error) error {
	if damage, ok := errors.AsType[*ledger.DamageError](err); ok {
		instead := "give up the lost batches for good with --accept-ledger-loss"
		if n.cfg.AcceptLedgerLoss {
			instead = "start afresh with another --data"
		}
		return fmt.Errorf("%w; a damaged ledger is never skipped silently: restore %s from a backup, or %s", damage, n.ledgerPlace(), instead)
	}
	return err
}

// ledgerPlace describes where the ledger's files are.
func (n *natsLink) ledgerPlace() string {
	if n.embedded != nil {
		return n.cfg.Data
	}
	return "the store_dir of NATS at " + n.natsURL
}
