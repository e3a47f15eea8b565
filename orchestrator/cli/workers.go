package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/outbid-dev/outbid/orchestrator/bus"
	"github.com/outbid-dev/outbid/orchestrator/identity"
	"github.com/outbid-dev/outbid/worker"
	"github.com/outbid-dev/outbid/worker/claim"
	"github.com/outbid-dev/outbid/worker/inventory"
)

// workerOptions say what a worker offers.
type workerOptions struct {
	name, devices, dir string
	labels             map[string]string
	trials             trialOptions
	// secrets are files, or directories of them, that trials must not be able to read.
	secrets []string
}

// nodeName makes a name that NATS and the ledger take from that of the machine.
func nodeName(hostname string) string {
	name := regexp.MustCompile(`[^A-Za-z0-9_-]+`).ReplaceAllString(hostname, "-")
	if name = strings.Trim(name, "-"); name == "" {
		return "node"
	}
	return name
}

// hostName is this machine's name.
func hostName() string {
	name, err := os.Hostname()
	if err != nil {
		return "node"
	}
	return nodeName(name)
}

// runWorker runs a worker in the server's own process, as a user of its own as any other.
func (s *server) runWorker(ctx context.Context, o workerOptions) error {
	o.secrets = []string{s.opts.nats.keys, s.opts.tokens, s.opts.tlsKey}
	who, err := s.keys.Worker(o.name, time.Now())
	if err != nil {
		return err
	}
	if err := s.members.list.Add(ctx, o.name, who.Public(), time.Now()); err != nil {
		return err
	}
	nc, err := s.opts.nats.connect(ctx, who, s.embedded, "worker "+o.name, s.app.opts.ca, s.log)
	if err != nil {
		return err
	}
	defer nc.Close()
	logs, err := bus.AttachLogs(nc, s.log)
	if err != nil {
		return err
	}
	err = s.app.work(ctx, o, workerParts{
		nc: nc, logs: logs, store: worker.Direct(s.store), who: who, log: s.log,
		lacks: func(why string) { s.health.lacks(o.name, why) },
	})
	return errors.Join(err, logs.Close())
}

// workerParts are what a worker stands on.
type workerParts struct {
	nc    *nats.Conn
	logs  *bus.Logs
	store worker.Store
	who   *identity.Credentials
	// lacks hears which device the worker does not get; may be nil.
	lacks func(why string)
	log   *slog.Logger
}

// work runs a worker until ctx ends; then its trials save and end.
func (a *app) work(ctx context.Context, o workerOptions, p workerParts) (err error) {
	machine, err := inventory.Find(o.devices)
	if err != nil {
		return badInput("--devices: %w", err)
	}
	machine, release, err := claimDevices(ctx, o, machine, p)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, release()) }()
	collectLess()
	log := p.log.With("node", o.name)
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
	if err := o.trials.learn(ctx, speaks, o.name, log); err != nil {
		return err
	}
	if err := o.trials.guard(o.secrets); err != nil {
		return err
	}
	return worker.Run(ctx, worker.Config{
		Node: o.name, Machine: machine, Bus: speaks, Store: p.store, Server: orders, Dir: o.dir,
		Python: o.trials.python, PassEnv: o.trials.passEnv, TrialUser: o.trials.user, TrialGroups: o.trials.groups,
		TrialDir: o.trials.dir, TrustTrials: o.trials.trust, Version: a.version, Labels: o.labels, Logger: log,
	})
}

// claimDevices claims the devices that were found, or waits for them, and says who has those that it does not get.
func claimDevices(
	ctx context.Context, o workerOptions, found inventory.Machine, p workerParts,
) (inventory.Machine, func() error, error) {
	lacks := p.lacks
	if lacks == nil {
		lacks = func(string) {}
	}
	machine, release, err := found.Claim(ctx, o.dir, func(h *claim.Held) {
		p.log.Warn("a device is not offered, or waited for if none is left, as another worker of this machine has it; "+
			"declare slots, such as --devices cpu:2, to share cores", "device", h.What, "by", h.By.String())
		lacks(h.Error())
	})
	if err == nil && len(machine.Devices) == len(found.Devices) {
		lacks("")
	}
	return machine, release, err
}

// ordersOf are what a worker checks orders with: the key of the server that it has joined.
func ordersOf(who *identity.Credentials, log *slog.Logger) (*identity.Verifier, bus.Check, error) {
	orders, err := identity.NewVerifier(who.OrdersKey)
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

func (a *app) workerCommand() *cobra.Command {
	var o workerOptions
	var nats natsOptions
	var store, credentials string
	cmd := &cobra.Command{
		Use:   "worker",
		Short: "Offer this machine's devices to a server",
		Long: `Worker connects to a server's NATS, offers this machine's GPUs (or CPU cores if it has none), and trains what
the server sends. Ctrl-C lets trials save, hands them back, and ends.

Each worker has an identity of its own, with which it can speak for itself alone. On another machine it is made by
'outbid worker join', and --credentials names where it is. On the server's machine, as the same user, nothing is
needed: the worker that finds a server in ./.outbid or ~/.outbid, or its keys in --keys, makes itself known.

For every checkpoint and function that its trials need the worker asks the server, which hands out a URL that is good
for that object alone and for some time; the worker has no credentials of the store. With --store it reaches the store
by itself instead, with this machine's credentials or over a file system that all machines share, and may then read
and write what is everybody's.

--devices is a list, separated by commas, of auto, gpu, cpu, TYPE:COUNT and TYPE:COUNT@SPEED; those with a count are
declared and need not exist.

Trials see little of the worker's environment: where programs and modules are found, the language and what GPUs need.
--pass-env names what they see beside that, such as HF_HOME.

If the server asks for tokens, each trial runs as a user of its own, which takes root or the capabilities CAP_SETUID,
CAP_SETGID, CAP_CHOWN and CAP_KILL; a worker that has neither ends, unless it is told to trust trials.`,
		Example: `  outbid worker
  outbid worker --credentials /etc/outbid/worker
  outbid worker --keys .outbid/keys --nats nats://127.0.0.1:4222 --name small --devices cpu:2`,
		Args:              exactly(),
		ValidArgsFunction: cobra.NoFileCompletions,
		Annotations:       map[string]string{ownInterrupts: "drains"},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.trials.check(); err != nil {
				return err
			}
			if a.opts.tokenFile != "" {
				return errJoinTokenGone("worker")
			}
			return a.untilDone(cmd.Context(), func(ctx context.Context) error {
				return a.runWorkerCommand(ctx, o, nats, credentials, store)
			})
		},
	}
	workerFlags(cmd, &o, &nats)
	f := cmd.Flags()
	f.StringVar(&credentials, "credentials", "", "`DIR` that 'outbid worker join' wrote")
	f.StringVar(&store, "store", "", "`STORE` of checkpoints to reach without asking the server: a directory that all "+
		"machines share, or s3://bucket/prefix?endpoint=URL with this machine's credentials")
	_ = cmd.MarkFlagDirname("credentials")
	cmd.AddCommand(a.workerTokenCommand(), a.workerJoinCommand(), a.workerRemoveCommand())
	return cmd
}

// workerFlags are the flags that say what a worker offers and where NATS is.
func workerFlags(cmd *cobra.Command, o *workerOptions, nats *natsOptions) {
	f := cmd.Flags()
	f.StringVar(&nats.url, "nats", "", "`URL` of NATS, or several separated by commas (default: what the credentials say, "+
		"that of the server running from ./.outbid or ~/.outbid, else "+bus.DefaultURL+")")
	f.StringVar(&nats.keys, "keys", "", "`DIR` of the server's keys, on its own machine (default: that server's)")
	natsFlags(cmd, nats)
	f.StringVar(&o.name, "name", "", "name of this node, unique in the cluster (default: what the credentials say, else the machine's)")
	f.StringVar(&o.devices, "devices", "auto", "`DEVICES` to offer, such as gpu, cpu:4 or v100:2@0.5")
	f.StringVar(&o.dir, "dir", "", "`DIR` for scratch files (default: ./.outbid/workers/NAME)")
	o.trials.flags(cmd)
	f.StringToStringVar(&o.labels, "label", nil, "`NAME=VALUE` shown in listings; may be given several times")
	_ = cmd.MarkFlagDirname("keys")
	_ = cmd.MarkFlagDirname("dir")
}

// findNATS fills in what was not given from a server that runs on this machine.
func (a *app) findNATS(o *natsOptions) {
	for _, dir := range a.dataDirs() {
		f, running, err := readServerFile(serverFilePath(dir))
		if err != nil || !running || (o.url != "" && o.url != f.NATS) {
			continue
		}
		if o.url == "" {
			o.url = f.NATS
		}
		if o.keys == "" {
			o.keys = f.Keys
		}
		return
	}
	if o.url == "" {
		o.url = bus.DefaultURL
	}
}

// whoWorks finds out who this worker is, and fills in its name and where NATS is.
func (a *app) whoWorks(
	ctx context.Context, o *workerOptions, nats *natsOptions, credentials string, log *slog.Logger,
) (*identity.Credentials, error) {
	if credentials == "" {
		a.findNATS(nats)
		if nats.keys == "" {
			return nil, badInput("--credentials is missing: no server of this user runs here, so this worker must join one: " +
				"'outbid worker join --server URL --join-token FILE --credentials DIR'")
		}
		if o.name == "" {
			o.name = hostName()
		}
		return workerHere(ctx, *nats, o.name, a.opts.ca, log)
	}
	if nats.keys != "" {
		return nil, badInput("--credentials and --keys both say who this worker is: give only one of them")
	}
	who, err := identity.ReadCredentials(credentials)
	if err != nil {
		return nil, badInput("--credentials: %w; make them with 'outbid worker join'", err)
	}
	switch end := who.Expires(); {
	case o.name != "" && o.name != who.Node:
		return nil, badInput("--name %s: these credentials are of the worker %s; leave --name out, or join again under that name",
			o.name, who.Node)
	case !end.IsZero() && !time.Now().Before(end):
		return nil, badInput("--credentials %s ran out at %s: join again with a new token ('outbid worker join')", credentials,
			end.Format(time.RFC3339))
	}
	o.name = who.Node
	if nats.url == "" {
		nats.url = who.NATS
	}
	return who, nil
}

// runWorkerCommand connects to NATS and runs one worker.
func (a *app) runWorkerCommand(
	ctx context.Context, o workerOptions, nats natsOptions, credentials, store string,
) (err error) {
	log, err := a.logger()
	if err != nil {
		return err
	}
	who, err := a.whoWorks(ctx, &o, &nats, credentials, log)
	if err != nil {
		return err
	}
	o.secrets = []string{credentials, nats.keys}
	if o.dir == "" {
		o.dir = filepath.Join(defaultData, "workers", o.name)
	}
	// Programs run in directories of their own below this one.
	if o.dir, err = filepath.Abs(o.dir); err != nil {
		return badInput("--dir: %w", err)
	}
	ca := a.opts.ca
	if ca == "" && strings.Contains(nats.url, "tls://") { // NATS may be in the clear beside an API that is not
		ca = who.CA
	}
	nc, err := nats.connect(ctx, who, nil, "worker "+o.name, ca, log)
	if err != nil {
		return unreachable(err)
	}
	defer nc.Close()
	if a.opts.ca == "" {
		a.opts.ca = who.CA
	}
	shelf, name, err := a.workerStore(ctx, nc, who, store, log)
	if err != nil {
		return err
	}
	logs, err := bus.AttachLogs(nc, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, logs.Close()) }()
	log.Info("worker starts", "node", o.name, "nats", redactURLs(nats.url), "store", name)
	return a.work(ctx, o, workerParts{nc: nc, logs: logs, store: shelf, who: who, log: log})
}

// countDevices says what a worker's devices are, for people.
func countDevices(spec string) string {
	machine, err := inventory.Find(spec)
	if err != nil {
		return spec
	}
	counts := map[string]int{}
	for _, d := range machine.Devices {
		counts[d.GetType()]++
	}
	var parts []string
	for _, t := range sortedKeys(counts) {
		parts = append(parts, fmt.Sprintf("%d %s", counts[t], t))
	}
	return strings.Join(parts, " + ")
}
