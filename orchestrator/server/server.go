// Package server assembles and runs servers, with NATS, store, ledger, control loop and API, and workers, in the
// server's process or separate ones. Each is configured by a struct, opened, run until its context ends, and closed.
// The package does not print or read flags.
package server

import (
	"context"
	"crypto/tls"
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

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	agents "github.com/outbid-dev/outbid/orchestrator/agent/plugin"
	"github.com/outbid-dev/outbid/orchestrator/api"
	"github.com/outbid-dev/outbid/orchestrator/bus"
	"github.com/outbid-dev/outbid/orchestrator/control"
	"github.com/outbid-dev/outbid/orchestrator/identity"
	"github.com/outbid-dev/outbid/orchestrator/ledger"
	"github.com/outbid-dev/outbid/orchestrator/objects"
	"github.com/outbid-dev/outbid/orchestrator/secrets"
	"github.com/outbid-dev/outbid/orchestrator/state"
)

// Server is an orchestrator, optionally with NATS and workers in the same process.
type Server struct {
	cfg Config
	log *slog.Logger

	keys     *identity.Keys
	members  *members
	cert     *api.Certificate
	certs    *tls.Config
	tokens   *api.Tokens
	limits   *api.Limits
	embedded *bus.Server
	natsURL  string
	nc       *nats.Conn
	logs     *bus.Logs
	store    objects.Store
	// signer gives workers access to single objects. objects does it for a store that cannot sign, or is nil.
	signer  objects.Signer
	objects *objects.Handler
	lead    *bus.Leadership
	loop    *control.Loop
	reports *reportLog
	// notes are stored for later leaders. lost are the batches of the ledger that were given up.
	notes    *bus.Notes
	lost     []ledger.Hole
	scrub    *ledgerScrub
	agents   *agents.Pool
	vault    *secrets.Vault
	api      *api.Server
	health   *health
	registry *prometheus.Registry
	storage  *storageMetrics
	// room records whether there is room for new sweeps.
	room room
	// leading is lead for concurrent readers while the server opens. ready is set once it accepts commands.
	leading atomic.Pointer[bus.Leadership]
	ready   atomic.Bool
	group   *group
	// undo releases what was opened, in reverse order.
	undo []func() error
}

// Open opens every part of a server in order: data, NATS, store, lead, workers, ledger, control, API. It waits for the
// lead, which a standby gets when the leader is gone. Invalid configuration is a *FieldError; an unreachable NATS is an
// *UnreachableError. Close releases what it opened.
func Open(ctx context.Context, cfg Config) (*Server, error) {
	cfg, err := cfg.filled()
	if err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, log: cfg.Logger, group: newGroup(), registry: prometheus.NewRegistry()}
	if err := s.open(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
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
	if s.keys, err = identity.MakeKeys(s.cfg.NATS.Keys); err != nil {
		return badField("NATS.Keys", "%w", err)
	}
	if err := s.readSecrets(); err != nil {
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
	notReady := openStandby(listener, s.certs, api.StandbyMetrics(s.registry, s.tokens))
	base := "http://"
	if s.certs != nil {
		base = "https://"
	}
	base += listener.Addr().String()
	for _, step := range []struct {
		waitsFor string
		run      func(context.Context) error
	}{{"NATS", s.openBus}, {"the store", s.openStore}, {"the lead", s.takeLead}, {"the workers", s.openMembers}, {"the secrets", s.openVault}, {"the ledger", s.openLoop}} {
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

// onClose registers a function that releases what was just opened.
func (s *Server) onClose(f func() error) { s.undo = append(s.undo, f) }

// Close releases everything that Open opened, in reverse order. Run must have returned.
func (s *Server) Close() error {
	var errs []error
	for _, f := range slices.Backward(s.undo) {
		errs = append(errs, f())
	}
	return errors.Join(errs...)
}

// readSecrets loads the certificate and the tokens, and rejects an address that requires them if they are missing,
// before anything listens there.
func (s *Server) readSecrets() error {
	o := s.cfg
	var err error
	if o.TLSCert != "" {
		if s.cert, err = api.LoadCertificate(o.TLSCert, o.TLSKey, s.cfg.Now); err != nil {
			return badField("TLSCert", "%w", err)
		}
		s.certs = s.cert.Config()
	}
	if o.Tokens != "" {
		if s.tokens, err = api.LoadTokens(o.Tokens); err != nil {
			return badField("Tokens", "%w", err)
		}
	}
	if o.Limits != "" {
		if s.limits, err = api.LoadLimits(o.Limits); err != nil {
			return badField("Limits", "%w", err)
		}
	}
	for _, file := range []string{o.NATS.Keys, o.Tokens, o.TLSKey} {
		s.warnOpen(file)
	}
	if err := api.CheckAddr(o.API, s.tokens != nil, s.certs != nil); err != nil {
		return badField("API", "%w", err)
	}
	return nil
}

// tenants reports whether users other than the one that runs the server submit sweeps: then tokens are required.
func (s *Server) tenants() bool { return s.tokens != nil }

// warnOpen warns of a secret that every user of this machine can read.
func (s *Server) warnOpen(file string) {
	if info, err := os.Stat(file); err == nil && info.Mode().Perm()&0o007 != 0 {
		s.log.Warn("every user of this machine can read a secret; make it readable only by its owner", "file", file,
			"fix", "chmod 600 "+file)
	}
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
	s.note("port %s is taken, so the API is at http://%s", port, l.Addr())
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

// takeLead waits until this server leads. A server that runs NATS itself leads at once, because the previous leader
// used the previous NATS.
func (s *Server) takeLead(ctx context.Context) error {
	if s.embedded != nil {
		return s.campaign(ctx)
	}
	leader, err := bus.CurrentLeader(ctx, s.nc)
	if s.cfg.Standby {
		if err != nil {
			return s.campaign(ctx)
		}
		s.log.Info("standing by until the leader is gone", "leader", leader.ID, "term", leader.Term)
		return s.standBy(ctx)
	}
	if err == nil && isDeadLocalProcess(leader) {
		s.log.Info("the previous leader is dead; this server leads once its lease has expired", "leader", leader.ID,
			"pid", leader.PID)
	}
	wait, cancel := context.WithTimeout(ctx, s.cfg.LeadWait)
	defer cancel()
	err = s.campaign(wait)
	if err == nil || ctx.Err() != nil || wait.Err() == nil {
		return err
	}
	if leader, lookErr := bus.CurrentLeader(ctx, s.nc); lookErr == nil {
		return s.leadTaken(leader, err)
	}
	why := s.whyNoWrites(err)
	if why == "" {
		why = fmt.Sprintf("NATS at %s took longer than %s to elect it", s.natsURL, s.cfg.LeadWait)
	}
	return &UnreachableError{Msg: "this server cannot lead: " + why, Err: err}
}

// standBy waits until this server leads, or can no longer take over because a newer version has written to the ledger.
func (s *Server) standBy(ctx context.Context) error {
	able, give := context.WithCancelCause(ctx)
	defer give(nil)
	defer s.followLedger(ctx, give)()
	err := s.campaign(able)
	if cause := context.Cause(able); errors.Is(cause, state.ErrNewer) {
		return fmt.Errorf("this standby can no longer take over: %w", cause)
	}
	return err
}

// campaign waits until this server leads, or ctx ends.
func (s *Server) campaign(ctx context.Context) error {
	// The leadership ends with its context, which must outlive ctx: it is given up last.
	held, release := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, release)
	host, _ := os.Hostname() // only lets the next leader detect that this process is dead
	lead, err := bus.Campaign(held, s.nc, bus.Candidate{
		ID: s.cfg.Name, Host: host, PID: os.Getpid(), Force: s.embedded != nil, Patience: s.cfg.Lease, Replicas: s.cfg.NATS.Replicas, Logger: s.log,
	})
	if !stop() {
		release()
		return errors.Join(context.Cause(ctx), err)
	}
	if err != nil {
		release()
		return err
	}
	s.lead = lead
	s.leading.Store(lead)
	s.onClose(func() error {
		defer release()
		if lead.Lapsed() { // NATS is unavailable, or was for too long
			return nil
		}
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		if err := lead.Resign(ctx); err != nil {
			s.log.Warn("the lead could not be given up; the next leader waits until it expires", "err", err)
		}
		return nil
	})
	return nil
}

// closeTimeout limits how long closing a part may take.
const closeTimeout = 5 * time.Second

func (s *Server) openAPI(listener net.Listener) error {
	server, err := api.New(api.Config{
		Control: s.loop, Store: s.store, Logs: s.logs, Logger: s.log, Registry: s.registry, Listener: listener,
		Tokens: s.tokens, TLS: s.certs, Limits: s.limits, Objects: s.objects, Workers: s.members, Secrets: s.vault, Verify: s.verify,
		MaxPayload: s.maxPayload, Alone: func() bool { return s.cfg.Alone && s.missingWorkers() == 0 },
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
