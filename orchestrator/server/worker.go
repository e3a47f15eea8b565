package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/outbid-dev/outbid/orchestrator/bus"
	"github.com/outbid-dev/outbid/orchestrator/identity"
	"github.com/outbid-dev/outbid/orchestrator/sanitize"
	"github.com/outbid-dev/outbid/orchestrator/tracing"
	"github.com/outbid-dev/outbid/worker"
	"github.com/outbid-dev/outbid/worker/claim"
	"github.com/outbid-dev/outbid/worker/inventory"
	"github.com/outbid-dev/outbid/worker/spot"
)

// WorkerConfig configures a worker and its trials.
type WorkerConfig struct {
	// Name is its node's name, unique in the cluster.
	Name string
	// Devices are the devices to offer: a list, separated by commas, of auto, gpu, cpu, TYPE:COUNT and
	// TYPE:COUNT@SPEED; by default auto.
	Devices string
	// Dir is a directory for scratch files; by default derived from the server's data directory and the worker's name.
	Dir string
	// Labels are shown in listings, by name.
	Labels map[string]string
	// Trials configures the user and environment of training code.
	Trials TrialConfig
	// AverageRate is how many bytes per second one average of forks may read, so that the server's loop on the same
	// machine is not slowed down. 0 means no limit; otherwise it is at least worker.LeastAverageRate.
	AverageRate int64
	// DrainTimeout is how long trials may take to save when the worker is stopped; 0 means 30 s.
	DrainTimeout time.Duration
	// SpotNotice names where the notice appears that the machine is about to be taken away: ec2, gce, azure, file:PATH or a
	// URL; empty for nowhere.
	SpotNotice string
	// secrets are files, or directories of them, that trials must not be able to read.
	secrets []string
}

// check checks everything that does not depend on the server.
func (o *WorkerConfig) check() error {
	if err := worker.CheckLabels(o.Labels); err != nil {
		return badField("Labels", "%w", err)
	}
	if _, err := o.spot(); err != nil {
		return err
	}
	return o.Trials.check()
}

// spot returns the source of spot notices, or nil without one.
func (o *WorkerConfig) spot() (spot.Source, error) {
	if o.SpotNotice == "" {
		return nil, nil //nolint:nilnil // most machines are not taken away
	}
	source, err := spot.Open(o.SpotNotice)
	if err != nil {
		return nil, badField("SpotNotice", "%w", err)
	}
	return source, nil
}

// checkDevices parses Devices. It must not search for the same kinds as an earlier worker on this machine.
func (o *WorkerConfig) checkDevices(before []WorkerConfig) error {
	if o.Devices == "" {
		o.Devices = "auto"
	}
	found, err := o.looksFor()
	if err != nil {
		return badField("Workers.Devices", "%w", err)
	}
	for i := range before {
		theirs, err := before[i].looksFor()
		if err != nil {
			return badField("Workers.Devices", "%w", err)
		}
		if slices.ContainsFunc(found, func(kind string) bool { return slices.Contains(theirs, kind) }) {
			return badValue("Workers.Devices", strconv.Quote(o.Devices), "workers %s and %s on one machine would both claim its "+
				"devices; declare separate ones, such as cpu:1", before[i].Name, o.Name)
		}
	}
	return nil
}

// maxLabel limits the name and the value of a label, in bytes.
const maxLabel = 256

// checkLabels returns an error for an invalid label.
func (o *WorkerConfig) checkLabels() error {
	for name, value := range o.Labels {
		for _, text := range []string{name, value} {
			if err := sanitize.Check(text, maxLabel); err != nil {
				return badField("Labels", "%+.40q %w", text, err)
			}
		}
	}
	return nil
}

// looksFor returns the kinds of devices for which the worker searches the machine, as opposed to declared devices.
func (o *WorkerConfig) looksFor() (kinds []string, err error) {
	items, err := inventory.Parse(o.Devices)
	for _, item := range items {
		switch {
		case item.Count > 0:
		case item.Type == "auto": // GPUs, or cores if there are none
			kinds = append(kinds, "gpu", inventory.CPU)
		default:
			kinds = append(kinds, item.Type)
		}
	}
	return kinds, err
}

// runWorker runs a worker in the server's process, with an identity like any other worker.
func (s *Server) runWorker(ctx context.Context, o WorkerConfig) error {
	who, err := s.keys.Worker(o.Name, time.Now())
	if err != nil {
		return err
	}
	if err := s.members.list.Add(ctx, o.Name, who.Public(), time.Now()); err != nil {
		return err
	}
	nc, err := s.cfg.NATS.connect(ctx, who, s.embedded, "worker "+o.Name, s.log)
	if err != nil {
		return err
	}
	defer nc.Close()
	logs, err := bus.AttachLogs(nc, s.log)
	if err != nil {
		return err
	}
	err = runWorker(ctx, o, workerParts{
		nc: nc, logs: logs, store: s.ownStore, who: who, version: s.cfg.Version, log: s.log,
		lacks: func(why string) { s.health.setWaiting(o.Name, why) }, lone: s.embedded != nil,
	})
	return errors.Join(err, logs.Close())
}

// workerParts are the parts that a worker uses.
type workerParts struct {
	nc    *nats.Conn
	logs  *bus.Logs
	store worker.Store
	who   *identity.Credentials
	// lacks is called with the device that a trial waits for because another process of this machine uses it. It is nil
	// for a worker in a separate process, which claims its devices for its lifetime.
	lacks func(why string)
	// lone says that no other server can lead while this process is paused.
	lone bool
	// version is the version of this build.
	version string
	log     *slog.Logger
}

// runWorker runs a worker until ctx ends; then its trials save and end.
func runWorker(ctx context.Context, o WorkerConfig, p workerParts) (err error) {
	machine, err := inventory.Find(o.Devices)
	if err != nil {
		return badField("Devices", "%w", err)
	}
	machine, share, release, err := claimDevices(ctx, o, machine, p)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, release()) }()
	log := p.log.With("node", o.Name)
	orders, check, err := ordersVerifier(p.who, log)
	if err != nil {
		return err
	}
	link := worker.Link{NC: p.nc, Logs: p.logs, Who: p.who, Check: check, Renewed: func(err error) {
		if err != nil {
			log.Warn("new credentials could not be stored; the server sends them again", "error", err)
		}
	}}
	speaks := worker.NATS(link)
	if err := o.Trials.learn(ctx, speaks, o.Name, log); err != nil {
		return err
	}
	if err := o.Trials.checkSecrets(o.secrets); err != nil {
		return err
	}
	notices, err := o.spot()
	if err != nil {
		return err
	}
	opened := &closers{}
	tracer := openTracer(ctx, opened, tracing.Service{Name: "outbid-worker", Instance: o.Name, Version: p.version, Logger: log})
	defer func() { err = errors.Join(err, opened.close()) }()
	return worker.Run(ctx, worker.Config{
		Node: o.Name, Machine: machine, Share: share, Waits: p.lacks, Bus: speaks, Store: p.store, Server: orders, Dir: o.Dir,
		Python: o.Trials.Python, PassEnv: o.Trials.PassEnv, TrialUser: o.Trials.User, TrialGroups: o.Trials.Groups,
		TrialDir: o.Trials.Dir, TrustTrials: o.Trials.Trust, CheckpointBytes: o.Trials.CheckpointBytes,
		ScratchBytes: o.Trials.ScratchBytes, DiskMargin: o.Trials.DiskMargin, NoDiskHold: o.Trials.NoDiskHold, TrialProcesses: o.Trials.Processes, TrialFiles: o.Trials.Files,
		TrialNetwork: o.Trials.Network, Warn: p.lacks == nil, AverageRate: o.AverageRate, DrainTimeout: o.DrainTimeout, Spot: notices, Version: p.version, LoneServer: p.lone,
		Labels: o.Labels, Logger: log, Tracer: tracer,
	})
}

// claimDevices claims the devices that were found. A server's own worker claims them only while trials use them, so
// that servers on one machine share them. A worker in a separate process claims them for its lifetime, because its
// cluster could not know that another worker uses them. It waits for devices that are taken, and logs which process has
// them.
func claimDevices(
	ctx context.Context, o WorkerConfig, found inventory.Machine, p workerParts,
) (_ inventory.Machine, share *inventory.Share, release func() error, err error) {
	if p.lacks != nil {
		share = inventory.NewShare(found, o.Dir)
		return found, share, share.Close, nil
	}
	found, release, err = found.Claim(ctx, o.Dir, func(h *claim.Held) {
		p.log.Warn("another worker of this machine has a device; it is not offered, or waited for if there are no others; "+
			"declare slots, such as --devices cpu:2, to share cores", "device", h.What, "by", h.By.String())
	})
	return found, nil, release, err
}

// ordersVerifier returns the verifier for orders, with the key of the server that the worker has joined.
func ordersVerifier(who *identity.Credentials, log *slog.Logger) (*identity.Verifier, bus.Check, error) {
	orders, err := who.Orders()
	if err != nil {
		return nil, nil, fmt.Errorf("the key of the server: %w", err)
	}
	refused := newRefusals(log)
	return orders, func(subject string, data []byte, signature string) error {
		err := orders.Message(subject, data, signature)
		if err != nil {
			refused.note(subject, err)
		}
		return err
	}, nil
}

// LoneWorkerConfig configures a worker in a separate process.
type LoneWorkerConfig struct {
	// Worker.Name is by default the name in the credentials, or else that of the machine. Worker.Dir is by default
	// below the working directory.
	Worker WorkerConfig
	// NATS locates NATS, by default from the credentials. Its Keys are the server's keys on the server's machine, and
	// let the worker register itself; they exclude Credentials.
	NATS NATSConfig
	// Credentials is the directory that 'outbid worker join' wrote.
	Credentials string
	// Joined are credentials in memory, of a worker that has just joined; they exclude Credentials and NATS.Keys.
	// JoinedWith is the file of the token that it joined with, which trials must not be able to read.
	Joined     *identity.Credentials
	JoinedWith string
	// Store is a checkpoint store to access directly with this machine's credentials. By default the server signs for
	// every object.
	Store string
	// Version is the version of this build.
	Version string
	// Logger receives log messages; by default they are discarded.
	Logger *slog.Logger
}

// LoneWorker is a worker in a separate process.
type LoneWorker struct {
	cfg   LoneWorkerConfig
	parts workerParts
	nc    *nats.Conn
}

// Check returns a *FieldError if the configuration is invalid. It connects to nothing.
func (c LoneWorkerConfig) Check() error {
	w := c.Worker
	if err := errors.Join(w.check(), w.checkLabels(), w.checkDevices(nil)); err != nil {
		return err
	}
	if c.Credentials != "" && c.NATS.Keys != "" {
		return badField("Credentials", "cannot be combined with the server's keys, which also identify this worker: give only one of them")
	}
	return nil
}

// identify finds the worker's credentials, and sets its name and the address of NATS.
func (c *LoneWorkerConfig) identify(ctx context.Context) (*identity.Credentials, error) {
	if c.Joined != nil {
		c.Worker.Name, c.NATS.URL = c.Joined.Node, cmp.Or(c.NATS.URL, c.Joined.NATS)
		return c.Joined, nil
	}
	if c.Credentials == "" {
		if c.NATS.Keys == "" {
			return nil, badField("Credentials", "missing: no server of this user runs here, so this worker must join one: "+
				"'outbid worker join --server URL --join-token FILE --credentials DIR'")
		}
		if c.Worker.Name == "" {
			c.Worker.Name = NodeName()
		}
		return registerLocalWorker(ctx, c.NATS, c.Worker.Name, c.Logger)
	}
	if c.NATS.Keys != "" {
		return nil, badField("Credentials", "cannot be combined with the server's keys, which also identify this worker: give only one of them")
	}
	who, err := identity.ReadCredentials(c.Credentials)
	if err != nil {
		return nil, badField("Credentials", "%w; create them with 'outbid worker join'", err)
	}
	switch end := who.Expires(); {
	case c.Worker.Name != "" && c.Worker.Name != who.Node:
		return nil, badValue("Name", c.Worker.Name, "these credentials belong to worker %s; leave the name out, or join again under "+
			"that one", who.Node)
	case !end.IsZero() && !time.Now().Before(end):
		return nil, badValue("Credentials", c.Credentials, "they expired at %s: join again with a new token ('outbid worker join')",
			end.Format(time.RFC3339))
	}
	c.Worker.Name = who.Node
	if c.NATS.URL == "" {
		c.NATS.URL = who.NATS
	}
	return who, nil
}

// OpenWorker finds the worker's credentials and connects it to NATS. Invalid configuration is a *FieldError; an
// unreachable NATS is an *UnreachableError. Close releases what it opened.
func OpenWorker(ctx context.Context, cfg LoneWorkerConfig) (w *LoneWorker, err error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if err := errors.Join(cfg.Worker.check(), cfg.Worker.checkLabels(), cfg.Worker.checkDevices(nil)); err != nil {
		return nil, err
	}
	who, err := cfg.identify(ctx)
	if err != nil {
		return nil, err
	}
	cfg.Worker.secrets = []string{cfg.Credentials, cfg.NATS.Keys, cfg.JoinedWith}
	if cfg.Worker.Dir == "" {
		cfg.Worker.Dir = filepath.Join(".outbid", "workers", cfg.Worker.Name)
	}
	// Programs run in directories below this one.
	if cfg.Worker.Dir, err = filepath.Abs(cfg.Worker.Dir); err != nil {
		return nil, badField("Dir", "%w", err)
	}
	trusted := cfg.NATS.CA
	if trusted == "" {
		trusted = who.CA
	}
	if strings.Contains(cfg.NATS.URL, "tls://") { // NATS may be unencrypted although the API is encrypted
		cfg.NATS.CA = trusted
	}
	nc, err := cfg.NATS.connect(ctx, who, nil, "worker "+cfg.Worker.Name, cfg.Logger)
	if err != nil {
		return nil, unreachable(err)
	}
	defer func() {
		if err != nil {
			nc.Close()
		}
	}()
	store, name, err := workerStore(ctx, nc, who, cfg.Store, trusted, cfg.Logger)
	if err != nil {
		return nil, err
	}
	logs, err := bus.AttachLogs(nc, cfg.Logger)
	if err != nil {
		return nil, err
	}
	cfg.Logger.Info("worker starts", "node", cfg.Worker.Name, "nats", bus.RedactURLs(cfg.NATS.URL), "store", name)
	return &LoneWorker{
		cfg: cfg, nc: nc,
		parts: workerParts{nc: nc, logs: logs, store: store, who: who, version: cfg.Version, log: cfg.Logger},
	}, nil
}

// Run runs the worker until ctx ends; then its trials save and end.
func (w *LoneWorker) Run(ctx context.Context) error { return runWorker(ctx, w.cfg.Worker, w.parts) }

// Close releases what OpenWorker opened.
func (w *LoneWorker) Close() error {
	err := w.parts.logs.Close()
	w.nc.Close()
	return err
}
