package server

import (
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
	"github.com/outbid-dev/outbid/worker"
	"github.com/outbid-dev/outbid/worker/claim"
	"github.com/outbid-dev/outbid/worker/inventory"
)

// WorkerConfig says what a worker offers, and what its trials run as.
type WorkerConfig struct {
	// Name is its node's, unique in the cluster.
	Name string
	// Devices are what it offers: a list, separated by commas, of auto, gpu, cpu, TYPE:COUNT and TYPE:COUNT@SPEED; by
	// default auto.
	Devices string
	// Dir is a directory for scratch files; by default that of the server's data and the worker's name.
	Dir string
	// Labels are shown in listings, by name.
	Labels map[string]string
	// Trials says what training code runs as.
	Trials TrialConfig
	// AverageRate is how many bytes a second one average of what forks saved may read: on the server's machine its loop is not to notice them. 0
	// means no limit, else it is at least worker.LeastAverageRate.
	AverageRate int64
	// secrets are files, or directories of them, that trials must not be able to read.
	secrets []string
}

// check finds what is wrong whatever the server is like.
func (o *WorkerConfig) check() error {
	if err := worker.CheckLabels(o.Labels); err != nil {
		return badField("Labels", "%w", err)
	}
	return o.Trials.check()
}

// checkDevices reads Devices. The workers before it on this machine may not look for the same ones.
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
			return badValue("Workers.Devices", strconv.Quote(o.Devices), "workers %s and %s on one machine would all hold its "+
				"devices; give each its own, such as cpu:1", before[i].Name, o.Name)
		}
	}
	return nil
}

// maxLabel bounds the name and the value of a label, in bytes.
const maxLabel = 256

// checkLabels says what is wrong with the labels.
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

// looksFor says which kinds of devices the worker would find on the machine, rather than being told of them.
func (o *WorkerConfig) looksFor() (kinds []string, err error) {
	items, err := inventory.Parse(o.Devices)
	for _, item := range items {
		switch {
		case item.Count > 0:
		case item.Type == "auto": // GPUs, or cores where there are none
			kinds = append(kinds, "gpu", inventory.CPU)
		default:
			kinds = append(kinds, item.Type)
		}
	}
	return kinds, err
}

// runWorker runs a worker in the server's own process, as a user of its own as any other.
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
		lacks: func(why string) { s.health.lacks(o.Name, why) },
	})
	return errors.Join(err, logs.Close())
}

// workerParts are what a worker stands on.
type workerParts struct {
	nc    *nats.Conn
	logs  *bus.Logs
	store worker.Store
	who   *identity.Credentials
	// lacks hears which device a trial waits for because another process of this machine uses it; nil for a worker in a process
	// of its own, which has its devices for its life.
	lacks func(why string)
	// version is what this build calls itself.
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
	orders, check, err := ordersOf(p.who, log)
	if err != nil {
		return err
	}
	link := worker.Link{NC: p.nc, Logs: p.logs, Who: p.who, Check: check, Renewed: func(err error) {
		if err != nil {
			log.Warn("new credentials could not be taken over; the server sends them again", "error", err)
		}
	}}
	speaks := worker.NATS(link)
	if err := o.Trials.learn(ctx, speaks, o.Name, log); err != nil {
		return err
	}
	if err := o.Trials.checkSecrets(o.secrets); err != nil {
		return err
	}
	return worker.Run(ctx, worker.Config{
		Node: o.Name, Machine: machine, Share: share, Waits: p.lacks, Bus: speaks, Store: p.store, Server: orders, Dir: o.Dir,
		Python: o.Trials.Python, PassEnv: o.Trials.PassEnv, TrialUser: o.Trials.User, TrialGroups: o.Trials.Groups,
		TrialDir: o.Trials.Dir, TrustTrials: o.Trials.Trust, CheckpointBytes: o.Trials.CheckpointBytes,
		ScratchBytes: o.Trials.ScratchBytes, DiskMargin: o.Trials.DiskMargin, NoDiskHold: o.Trials.NoDiskHold, TrialProcesses: o.Trials.Processes, TrialFiles: o.Trials.Files,
		TrialNetwork: o.Trials.Network, Warn: p.lacks == nil, AverageRate: o.AverageRate, Version: p.version, Labels: o.Labels, Logger: log,
	})
}

// claimDevices has the devices that were found claimed: those of a server with a worker while trials use them, so that servers of
// one machine share them. A worker in a process of its own claims them for its life: its cluster could not know that another one
// uses them. It waits for those that it does not get, and logs which process has them.
func claimDevices(
	ctx context.Context, o WorkerConfig, found inventory.Machine, p workerParts,
) (_ inventory.Machine, share *inventory.Share, release func() error, err error) {
	if p.lacks != nil {
		share = inventory.NewShare(found, o.Dir)
		return found, share, share.Close, nil
	}
	found, release, err = found.Claim(ctx, o.Dir, func(h *claim.Held) {
		p.log.Warn("a device is not offered, or waited for if none is left, as another worker of this machine has it; "+
			"declare slots, such as --devices cpu:2, to share cores", "device", h.What, "by", h.By.String())
	})
	return found, nil, release, err
}

// ordersOf are what a worker checks orders with: the key of the server that it has joined.
func ordersOf(who *identity.Credentials, log *slog.Logger) (*identity.Verifier, bus.Check, error) {
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

// LoneWorkerConfig says what a worker in a process of its own needs beside what every worker needs.
type LoneWorkerConfig struct {
	// Worker's Name is by default what the credentials say, else the machine's; its Dir is by default below the working
	// directory.
	Worker WorkerConfig
	// NATS says where NATS is, by default where the credentials say. Its Keys are the server's on its own machine, with
	// which the worker makes itself known; they exclude Credentials.
	NATS NATSConfig
	// Credentials is the directory that 'outbid worker join' wrote.
	Credentials string
	// Store is a store of checkpoints to reach without asking the server, with this machine's credentials; by default the
	// server signs for every object.
	Store string
	// Version is what this build calls itself.
	Version string
	// Logger takes what happens; by default nobody hears it.
	Logger *slog.Logger
}

// LoneWorker is a worker in a process of its own.
type LoneWorker struct {
	cfg   LoneWorkerConfig
	parts workerParts
	nc    *nats.Conn
}

// identify finds out who the worker is, and fills in its name and where NATS is.
func (c *LoneWorkerConfig) identify(ctx context.Context) (*identity.Credentials, error) {
	if c.Credentials == "" {
		if c.NATS.Keys == "" {
			return nil, badField("Credentials", "missing: no server of this user runs here, so this worker must join one: "+
				"'outbid worker join --server URL --join-token FILE --credentials DIR'")
		}
		if c.Worker.Name == "" {
			c.Worker.Name = NodeName()
		}
		return workerHere(ctx, c.NATS, c.Worker.Name, c.Logger)
	}
	if c.NATS.Keys != "" {
		return nil, badField("Credentials", "the server's keys say who this worker is too: give only one of them")
	}
	who, err := identity.ReadCredentials(c.Credentials)
	if err != nil {
		return nil, badField("Credentials", "%w; make them with 'outbid worker join'", err)
	}
	switch end := who.Expires(); {
	case c.Worker.Name != "" && c.Worker.Name != who.Node:
		return nil, badValue("Name", c.Worker.Name, "these credentials are of the worker %s; give no name, or join again under "+
			"that one", who.Node)
	case !end.IsZero() && !time.Now().Before(end):
		return nil, badValue("Credentials", c.Credentials, "they ran out at %s: join again with a new token ('outbid worker join')",
			end.Format(time.RFC3339))
	}
	c.Worker.Name = who.Node
	if c.NATS.URL == "" {
		c.NATS.URL = who.NATS
	}
	return who, nil
}

// OpenWorker finds out who the worker is, and connects it to NATS. What it refuses is a *FieldError; a NATS that cannot be
// reached is an *UnreachableError. Close frees what it opened.
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
	cfg.Worker.secrets = []string{cfg.Credentials, cfg.NATS.Keys}
	if cfg.Worker.Dir == "" {
		cfg.Worker.Dir = filepath.Join(".outbid", "workers", cfg.Worker.Name)
	}
	// Programs run in directories of their own below this one.
	if cfg.Worker.Dir, err = filepath.Abs(cfg.Worker.Dir); err != nil {
		return nil, badField("Dir", "%w", err)
	}
	trusted := cfg.NATS.CA
	if trusted == "" {
		trusted = who.CA
	}
	if strings.Contains(cfg.NATS.URL, "tls://") { // NATS may be in the clear beside an API that is not
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

// Close frees what OpenWorker opened.
func (w *LoneWorker) Close() error {
	err := w.parts.logs.Close()
	w.nc.Close()
	return err
}
