// Package server assembles and runs servers, with NATS, store, ledger, control loop and API, and workers, in the
// server's process or separate ones. Each is configured by a struct, opened, run until its context ends, and closed.
// The package does not print or read flags.
package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/outbid-dev/outbid/orchestrator/accounts"
	"github.com/outbid-dev/outbid/orchestrator/api"
	"github.com/outbid-dev/outbid/orchestrator/audit"
	bidders "github.com/outbid-dev/outbid/orchestrator/bidder/plugin"
	"github.com/outbid-dev/outbid/orchestrator/bus"
	"github.com/outbid-dev/outbid/orchestrator/control"
	"github.com/outbid-dev/outbid/orchestrator/identity"
	"github.com/outbid-dev/outbid/orchestrator/ledger"
	"github.com/outbid-dev/outbid/orchestrator/objects"
	"github.com/outbid-dev/outbid/orchestrator/retention"
	"github.com/outbid-dev/outbid/orchestrator/secrets"
	"github.com/outbid-dev/outbid/orchestrator/tracing"
	"github.com/outbid-dev/outbid/orchestrator/usage"
)

// Server is an orchestrator, optionally with NATS and workers in the same process.
type Server struct {
	cfg Config
	log *slog.Logger

	*closers
	*natsLink
	leadership
	operatorFiles
	storeAccess
	members *members
	logs    *bus.Logs
	loop    *control.Loop
	reports *reportLog
	record  *ledger.JetStream
	usage   *usage.Book
	// retention deletes expired sweeps.
	retention *retention.Keeper
	guard     *ledgerGuard
	scrub     *ledgerScrub
	bidders   *bidders.Pool
	vault     *secrets.Vault
	audit     *audit.Log
	accounts  *accounts.Store
	api       *api.Server
	health    *health
	registry  *prometheus.Registry
	storage   *storageMetrics
	// room records whether there is room for new sweeps.
	room room
	// label marks the leader's pod, or is nil.
	label *leaderLabel
	// ready is set once the server accepts commands.
	ready atomic.Bool
	group *group
	// tracer exports spans, or is nil.
	tracer *tracing.Tracer
	traces traces
}

// closers release what was opened, in reverse order.
type closers struct{ undo []func() error }

// onClose registers a function that releases what was just opened.
func (c *closers) onClose(f func() error) { c.undo = append(c.undo, f) }

// close releases everything.
func (c *closers) close() error {
	var errs []error
	for _, f := range slices.Backward(c.undo) {
		errs = append(errs, f())
	}
	return errors.Join(errs...)
}

// Open opens every part of a server in order: data, NATS, store, lead, workers, ledger, control, API. It waits for the
// lead, which a standby gets when the leader is gone, and for a separate NATS that is away. Invalid configuration is a
// *FieldError. Close releases what it opened.
func Open(ctx context.Context, cfg Config) (*Server, error) {
	cfg, err := cfg.filled()
	if err != nil {
		return nil, err
	}
	for try := 1; ; try++ {
		s := assemble(cfg)
		err := s.open(ctx)
		if err == nil {
			return s, nil
		}
		again := s.awaits(ctx, err, try)
		err = errors.Join(err, s.Close())
		if !again || pause(ctx, natsAgain) != nil {
			return nil, err
		}
	}
}

// assemble returns a server that is not open.
func assemble(cfg Config) *Server {
	s := &Server{cfg: cfg, closers: &closers{}, group: newGroup(), registry: prometheus.NewRegistry()}
	s.log = tracing.WithTraceIDs(cfg.Logger, s.traces.of)
	s.natsLink = &natsLink{closers: s.closers, cfg: &s.cfg, log: s.log}
	s.leadership.natsLink, s.leadership.openArchive = s.natsLink, s.archiveStore
	s.operatorFiles = operatorFiles{log: s.log, now: cfg.Now, reload: cfg.Reload}
	s.storeAccess.log = s.log
	return s
}

// Run runs the server until ctx ends, which is not an error, or until it fails. It calls ready, which may be nil, once
// the workers of this process are up and the files with the server's addresses are written. It must be called only
// once.
func (s *Server) Run(ctx context.Context, ready func()) error {
	s.start(ctx)
	stopped := s.group.stop
	if err := s.announce(ctx); err != nil {
		return errors.Join(err, stopped())
	}
	if ready != nil {
		ready()
	}
	err := s.group.wait(ctx, s.lead.Lost())
	if errors.Is(err, errDeposed) {
		s.loop.Abandon()
		if s.lead.Lapsed() {
			err = s.lapsed()
		}
	}
	return errors.Join(err, s.withdraw(), stopped())
}

// URL returns the URL of the API.
func (s *Server) URL() string { return s.api.URL() }

// NATSURL returns the URL of NATS without passwords.
func (s *Server) NATSURL() string { return s.natsURL }

func (s *Server) open(ctx context.Context) error {
	if err := os.MkdirAll(s.cfg.Data, 0o700); err != nil {
		return badField("Data", "%w", trimOp(err))
	}
	var err error
	s.tracer = openTracer(ctx, s.closers, tracing.Service{Name: "outbid-server", Instance: s.cfg.Name, Version: s.cfg.Version, Logger: s.log})
	if s.keys, err = identity.MakeKeys(s.cfg.NATS.Keys); err != nil {
		return badField("NATS.Keys", "%w", err)
	}
	if err := s.operatorFiles.read(&s.cfg, s.keys, s.log); err != nil {
		return err
	}
	if s.label, err = openLabel(ctx, s.cfg.LeaderLabel, s.log); err != nil {
		return err
	}
	// Listen first so that a bad address fails early; the API is served last.
	listener, err := s.listen()
	if err != nil {
		return err
	}
	if err := s.registerOwn(); err != nil {
		return errors.Join(err, listener.Close())
	}
	notReady := openStandby(listener, s.certs, api.StandbyMetrics(s.registry, s.tokens, s.signIn))
	base := "http://"
	if s.certs != nil {
		base = "https://"
	}
	base += listener.Addr().String()
	awaitLead := func(ctx context.Context) error { return s.watchDuring(ctx, s.takeLead) }
	for _, step := range []struct {
		waitsFor string
		run      func(context.Context) error
	}{{"NATS", s.openBus}, {"the store", s.openStore}, {"the lead", awaitLead}, {"the audit", s.openAudit}, {"the workers", s.openMembers}, {"the secrets", s.openVault}, {"the API tokens", s.openAccounts}, {"the ledger", s.openLoop}} {
		notReady.waitFor(step.waitsFor)
		if err := step.run(ctx); err != nil {
			return errors.Join(err, notReady.leave(), listener.Close())
		}
	}
	if err := notReady.leave(); err != nil {
		return errors.Join(err, listener.Close())
	}
	s.openAccess(base)
	if err := s.openAPI(listener); err != nil {
		return err
	}
	s.ready.Store(true)
	return nil
}

// Close releases everything that Open opened, in reverse order. Run must have returned.
func (s *Server) Close() error {
	return s.closers.close()
}

// listen opens the API's port, or a free one if AnyPort is set and that port is taken.
func (s *Server) listen() (net.Listener, error) {
	l, err := net.Listen("tcp", s.cfg.API)
	if err == nil {
		return boundConns(l), nil
	}
	if !errors.Is(err, syscall.EADDRINUSE) {
		return nil, badValue("API", s.cfg.API, "%w", err)
	}
	if !s.cfg.AnyPort {
		return nil, badValue("API", s.cfg.API, "the port is taken; give another, or 0 for a free one")
	}
	host, port, err := net.SplitHostPort(s.cfg.API)
	if err != nil {
		return nil, badValue("API", s.cfg.API, "%w", err)
	}
	if l, err = net.Listen("tcp", net.JoinHostPort(host, "0")); err != nil {
		return nil, badValue("API", s.cfg.API, "%w", err)
	}
	s.cfg.note("port %s is taken, so the API is at http://%s", port, l.Addr())
	return boundConns(l), nil
}

func (s *Server) openStore(ctx context.Context) (err error) {
	where := s.cfg.Store
	if where == "" {
		if where, err = filepath.Abs(filepath.Join(s.cfg.Data, "store")); err != nil {
			return fmt.Errorf("store: %w", err)
		}
	}
	if s.store, err = objects.Open(ctx, where); err != nil {
		return badField("Store", "%w", err)
	}
	s.health = &health{
		version: s.cfg.Version, natsURL: s.natsURL, started: s.cfg.Now(), nc: s.nc, store: s.store,
	}
	return nil
}

// closeTimeout limits how long closing a part may take.
const closeTimeout = 5 * time.Second

func (s *Server) openAPI(listener net.Listener) error {
	server, err := api.New(api.Config{
		Control: s.loop, Store: s.store, Logs: s.logs, Logger: s.log, Registry: s.registry, Listener: listener,
		Tokens: s.tokens, SignIn: s.signIn, TLS: s.certs, Limits: s.limits, Objects: s.objects, Workers: s.members, Secrets: s.vault,
		Audit: s.audit, Accounts: s.accounts, Traces: s.tracer, Usage: s.usage, Prices: s.prices, Verify: s.verify, Retention: s.retention,
		WhatIf:     newWhatIf(s.cfg.WhatIf, s.record),
		MaxPayload: s.maxPayload, Away: s.away, Alone: func() bool { return s.cfg.Alone && s.missingWorkers() == 0 },
	})
	if err != nil {
		return errors.Join(badField("API", "%w", err), listener.Close())
	}
	s.api = server
	s.onClose(func() error {
		if err := listener.Close(); !errors.Is(err, net.ErrClosed) { // the API closed it if it was served
			return err
		}
		return nil
	})
	return nil
}
