package cli

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
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	agents "github.com/outbid-dev/outbid/orchestrator/agent/plugin"
	"github.com/outbid-dev/outbid/orchestrator/api"
	"github.com/outbid-dev/outbid/orchestrator/bus"
	"github.com/outbid-dev/outbid/orchestrator/control"
	"github.com/outbid-dev/outbid/orchestrator/identity"
	"github.com/outbid-dev/outbid/orchestrator/objects"
)

// serverOptions say what a server is made of and where it listens.
type serverOptions struct {
	data  string
	store string
	// api is HOST:PORT; anyPort takes a free port if that one is taken.
	api     string
	anyPort bool
	tokens  string
	limits  string
	tlsCert string
	tlsKey  string
	// nats is where NATS is; without a URL it runs in this process.
	nats    natsOptions
	name    string
	standby bool
	// leadWait is how long one that does not stand by waits for the lease of a leader that was killed.
	leadWait time.Duration
	policy   string
	// policyOptions are name=value.
	policyOptions []string
	// agents are name=command.
	agents       []string
	agentTimeout time.Duration
	lease        time.Duration
	readyFile    string
	// whileClients ends the server with its last client.
	whileClients bool
	workers      []workerOptions
}

// server is an orchestrator, with NATS and workers in the same process if they are asked for.
type server struct {
	app  *app
	opts serverOptions
	log  *slog.Logger

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
	// signer lets workers reach single objects; objects is it for a store that cannot sign for itself, else nil.
	signer   objects.Signer
	objects  *objects.Handler
	lead     *bus.Leadership
	loop     *control.Loop
	agents   *agents.Pool
	api      *api.Server
	health   *health
	registry *prometheus.Registry
	group    *group
	// undo frees what was opened, the last first.
	undo []func() error
}

// runServer opens a server, says that it is ready, and runs it until ctx ends or it can do no more.
func (a *app) runServer(ctx context.Context, opts serverOptions, ready func(*server)) (err error) {
	collectLess()
	log, err := a.logger()
	if err != nil {
		return err
	}
	s := &server{app: a, opts: opts, log: log, group: newGroup(), registry: prometheus.NewRegistry()}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := s.open(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	s.start(ctx)
	stopped := s.group.stop
	if err := s.announce(ctx); err != nil {
		return errors.Join(err, stopped())
	}
	ready(s)
	if err = s.group.wait(ctx, s.lead.Lost()); errors.Is(err, errDeposed) {
		s.loop.Abandon()
		if s.lead.Lapsed() {
			err = s.lapsed()
		}
	}
	return errors.Join(err, s.withdraw(), stopped())
}

// open opens every part from the bottom up: data, NATS, store, lead, workers, ledger, control, API.
func (s *server) open(ctx context.Context) error {
	if err := os.MkdirAll(s.opts.data, 0o700); err != nil {
		return badInput("--data: %w", trimOp(err))
	}
	var err error
	if s.keys, err = identity.MakeKeys(s.opts.nats.keys); err != nil {
		return badInput("--keys: %w", err)
	}
	if err := s.readSecrets(); err != nil {
		return err
	}
	// The door is opened first, though it answers last: an address that is taken or refused is said at once.
	listener, err := s.listen()
	if err != nil {
		return err
	}
	porch := openPorch(listener, s.certs)
	base := "http://"
	if s.certs != nil {
		base = "https://"
	}
	base += listener.Addr().String()
	for _, step := range []struct {
		waitsFor string
		run      func(context.Context) error
	}{{"NATS", s.openBus}, {"the store", s.openStore}, {"the lead", s.takeLead}, {"the workers", s.openMembers}, {"the ledger", s.openLoop}} {
		porch.waitFor(step.waitsFor)
		if err := step.run(ctx); err != nil {
			return errors.Join(err, porch.leave(), listener.Close())
		}
	}
	if err := porch.leave(); err != nil {
		return errors.Join(err, listener.Close())
	}
	s.openAccess(base)
	return s.openAPI(listener)
}

// onClose remembers how to free what was just opened.
func (s *server) onClose(f func() error) { s.undo = append(s.undo, f) }

// close frees everything, the last first.
func (s *server) close() error {
	var errs []error
	for _, f := range slices.Backward(s.undo) {
		errs = append(errs, f())
	}
	return errors.Join(errs...)
}

// readSecrets loads the certificate and the tokens, and refuses an address that wants those that are missing, before
// anything listens there.
func (s *server) readSecrets() error {
	o := s.opts
	if (o.tlsCert == "") != (o.tlsKey == "") {
		return badInput("--tls-cert and --tls-key belong together: give both, or make them with 'outbid tls new'")
	}
	var err error
	if o.tlsCert != "" {
		if s.cert, err = api.LoadCertificate(o.tlsCert, o.tlsKey, s.app.now); err != nil {
			return badInput("%w", err)
		}
		s.certs = s.cert.Config()
	}
	if o.tokens != "" {
		if s.tokens, err = api.LoadTokens(o.tokens); err != nil {
			return badInput("%w", err)
		}
	}
	if o.limits != "" {
		if s.limits, err = api.LoadLimits(o.limits); err != nil {
			return badInput("--limits: %w", err)
		}
	}
	for _, file := range []string{o.nats.keys, o.tokens, o.tlsKey} {
		s.warnOpen(file)
	}
	if err := api.CheckAddr(o.api, s.tokens != nil, s.certs != nil); err != nil {
		return badInput("--api: %w", err)
	}
	return nil
}

// tenants says whether sweeps come from others than the user that runs the server: then they show tokens.
func (s *server) tenants() bool { return s.tokens != nil }

// warnOpen warns of a secret that everybody on this machine can read.
func (s *server) warnOpen(file string) {
	if info, err := os.Stat(file); err == nil && info.Mode().Perm()&0o007 != 0 {
		s.log.Warn("everybody on this machine can read a secret; make it readable by its owner alone", "file", file,
			"fix", "chmod 600 "+file)
	}
}

// listen opens the API's port, or a free one if nobody asked for that very port.
func (s *server) listen() (net.Listener, error) {
	l, err := net.Listen("tcp", s.opts.api)
	if err == nil {
		return l, nil
	}
	if !errors.Is(err, syscall.EADDRINUSE) {
		return nil, badInput("--api %s: %w", s.opts.api, err)
	}
	if !s.opts.anyPort {
		return nil, badInput("--api %s: the port is taken; give another, or 0 for a free one", s.opts.api)
	}
	host, port, err := net.SplitHostPort(s.opts.api)
	if err != nil {
		return nil, badInput("--api %s: %w", s.opts.api, err)
	}
	if l, err = net.Listen("tcp", net.JoinHostPort(host, "0")); err != nil {
		return nil, badInput("--api %s: %w", s.opts.api, err)
	}
	s.app.notef("port %s is taken, so the API is at http://%s", port, l.Addr())
	return l, nil
}

func (s *server) openStore(ctx context.Context) (err error) {
	where := s.opts.store
	if where == "" {
		if where, err = filepath.Abs(filepath.Join(s.opts.data, "store")); err != nil {
			return fmt.Errorf("store: %w", err)
		}
	}
	if s.store, err = objects.Open(ctx, where); err != nil {
		return badInput("--store: %w", err)
	}
	s.health = &health{
		version: s.app.version, natsURL: s.natsURL, started: s.app.now(), nc: s.nc, store: s.store,
	}
	return nil
}

// takeLead waits until this orchestrator leads. The one that runs NATS itself leads at once: whoever led before it
// used the server of before.
func (s *server) takeLead(ctx context.Context) error {
	if s.embedded != nil {
		return s.campaign(ctx)
	}
	leader, err := bus.CurrentLeader(ctx, s.nc)
	if s.opts.standby {
		if err == nil {
			s.log.Info("standing by until the leader is gone", "leader", leader.ID, "term", leader.Term)
			defer s.followLedger(ctx)()
		}
		return s.campaign(ctx)
	}
	if err == nil && deadHere(leader) {
		s.log.Info("the orchestrator that led before is dead; this one leads when its lease has run out", "leader", leader.ID,
			"pid", leader.PID)
	}
	wait, cancel := context.WithTimeout(ctx, s.opts.leadWait)
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
		why = fmt.Sprintf("NATS at %s took longer than %s for it", s.natsURL, s.opts.leadWait)
	}
	return &exitError{code: exitUnreachable, msg: "this orchestrator cannot lead: " + why, err: err}
}

// campaign waits until this orchestrator leads, or ctx ends.
func (s *server) campaign(ctx context.Context) error {
	// The leadership ends with its context, and must outlive ctx: it is given up last.
	held, release := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, release)
	host, _ := os.Hostname() // without it the next one does not know whether this one is dead
	lead, err := bus.Campaign(held, s.nc, bus.Candidate{
		ID: s.opts.name, Host: host, PID: os.Getpid(), Force: s.embedded != nil, Replicas: s.opts.nats.replicas, Logger: s.log,
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
	s.onClose(func() error {
		defer release()
		if lead.Lapsed() { // NATS is away, or was for too long
			return nil
		}
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		if err := lead.Resign(ctx); err != nil {
			s.log.Warn("the lead could not be given up; the next orchestrator waits until it runs out", "err", err)
		}
		return nil
	})
	return nil
}

// closeTimeout bounds the last words of what is closed.
const closeTimeout = 5 * time.Second

func (s *server) openAPI(listener net.Listener) error {
	server, err := api.New(api.Config{
		Control: s.loop, Store: s.store, Logs: s.logs, Logger: s.log, Registry: s.registry, Listener: listener,
		Tokens: s.tokens, TLS: s.certs, Limits: s.limits, Objects: s.objects, Workers: s.members,
	})
	if err != nil {
		return errors.Join(badInput("%w", err), listener.Close())
	}
	s.api = server
	return nil
}
