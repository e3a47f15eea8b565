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

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/outbid-dev/outbid/orchestrator/bus"
	"github.com/outbid-dev/outbid/worker"
	"github.com/outbid-dev/outbid/worker/inventory"
)

// workerOptions say what a worker offers.
type workerOptions struct {
	name, devices, dir, python string
	labels                     map[string]string
	// passEnv are patterns of names of environment variables that trials see.
	passEnv []string
}

// trialFlags are the flags of whatever runs trials.
func trialFlags(cmd *cobra.Command, o *workerOptions) {
	f := cmd.Flags()
	f.StringVar(&o.python, "python", "python3", "Python interpreter for functions that name none")
	f.StringSliceVar(&o.passEnv, "pass-env", nil, "`NAMES` of environment variables that trials see beside those that they "+
		"need, or patterns such as 'WANDB_*'; may be given several times")
}

// settle checks what up and worker share.
func (o *workerOptions) settle() error {
	if err := worker.CheckPassEnv(o.passEnv); err != nil {
		return badInput("--pass-env %w", err)
	}
	return nil
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

// runWorker runs a worker in the server's own process.
func (s *server) runWorker(ctx context.Context, o workerOptions) error {
	nc, err := s.opts.nats.connect(ctx, s.key, s.embedded, "worker "+o.name, s.app.opts.ca, s.log)
	if err != nil {
		return err
	}
	defer nc.Close()
	return s.app.work(ctx, o, workerParts{nc: nc, logs: s.logs, store: worker.Direct(s.store), key: s.key, log: s.log})
}

// workerParts are what a worker stands on.
type workerParts struct {
	nc    *nats.Conn
	logs  *bus.Logs
	store worker.Store
	key   joinKey
	log   *slog.Logger
}

// work runs a worker until ctx ends; then its trials save and end.
func (a *app) work(ctx context.Context, o workerOptions, p workerParts) error {
	machine, err := inventory.Find(o.devices)
	if err != nil {
		return badInput("--devices: %w", err)
	}
	collectLess()
	return worker.Run(ctx, worker.Config{
		Node: o.name, Machine: machine, Bus: worker.NATS(p.nc, p.logs), Store: p.store, ClusterKey: p.key.raw, Dir: o.dir,
		Python: o.python, PassEnv: o.passEnv, Version: a.version, Labels: o.labels, Logger: p.log.With("node", o.name),
	})
}

func (a *app) workerCommand() *cobra.Command {
	var o workerOptions
	var nats natsOptions
	var store string
	cmd := &cobra.Command{
		Use:   "worker",
		Short: "Offer this machine's devices to a server",
		Long: `Worker connects to a server's NATS, offers this machine's GPUs (or CPU cores if it has none), and trains what
the server sends. Ctrl-C lets trials save, hands them back, and ends.

Without --nats it joins the server that runs from ./.outbid or ~/.outbid. The join token is a file that the server
writes on its first start (DATA/token); copy it to each worker, readable by its owner alone.

For every checkpoint and function that its trials need the worker asks the server, which hands out a URL that is good
for that object alone and for some time; the worker has no credentials of the store. With --store it reaches the store
by itself instead, with this machine's credentials or over a file system that all machines share, and may then read
and write what is everybody's.

--devices is a list, separated by commas, of auto, gpu, cpu, TYPE:COUNT and TYPE:COUNT@SPEED; those with a count are
declared and need not exist.

Trials see little of the worker's environment: where programs and modules are found, the language and what GPUs need.
--pass-env names what they see beside that, such as HF_HOME.`,
		Example: `  outbid worker
  outbid worker --nats tls://tuner.example.org:4222 --ca ca.pem --token-file token
  outbid worker --nats nats://127.0.0.1:4222 --token-file .outbid/token --name small --devices cpu:2`,
		Args:              exactly(),
		ValidArgsFunction: cobra.NoFileCompletions,
		Annotations:       map[string]string{ownInterrupts: "drains"},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.settle(); err != nil {
				return err
			}
			a.findNATS(&nats)
			return a.untilDone(cmd.Context(), func(ctx context.Context) error {
				return a.runWorkerCommand(ctx, o, nats, store)
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&nats.url, "nats", "", "`URL` of NATS, or several separated by commas (default: that of the server "+
		"running from ./.outbid or ~/.outbid, else "+bus.DefaultURL+")")
	f.StringVar(&nats.tokenFile, "token-file", "", "`FILE` with the join token (default: that server's)")
	natsFlags(cmd, &nats)
	f.StringVar(&o.name, "name", "", "name of this node, unique in the cluster (default: the machine's)")
	f.StringVar(&o.devices, "devices", "auto", "`DEVICES` to offer, such as gpu, cpu:4 or v100:2@0.5")
	f.StringVar(&store, "store", "", "`STORE` of checkpoints to reach without asking the server: a directory that all "+
		"machines share, or s3://bucket/prefix?endpoint=URL with this machine's credentials")
	f.StringVar(&o.dir, "dir", "", "`DIR` for scratch files (default: ./.outbid/workers/NAME)")
	trialFlags(cmd, &o)
	f.StringToStringVar(&o.labels, "label", nil, "`NAME=VALUE` shown in listings; may be given several times")
	_ = cmd.MarkFlagFilename("token-file")
	_ = cmd.MarkFlagDirname("dir")
	return cmd
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
		if o.tokenFile == "" {
			o.tokenFile = f.TokenFile
		}
		return
	}
	if o.url == "" {
		o.url = bus.DefaultURL
	}
}

// runWorkerCommand connects to NATS and runs one worker.
func (a *app) runWorkerCommand(ctx context.Context, o workerOptions, nats natsOptions, store string) (err error) {
	log, err := a.logger()
	if err != nil {
		return err
	}
	if o.name == "" {
		o.name = hostName()
	}
	if o.dir == "" {
		o.dir = filepath.Join(defaultData, "workers", o.name)
	}
	// Programs run in directories of their own below this one.
	if o.dir, err = filepath.Abs(o.dir); err != nil {
		return badInput("--dir: %w", err)
	}
	if nats.tokenFile == "" {
		return badInput("--token-file is missing: copy the file DATA/token of the server to this machine and name it")
	}
	key, err := readJoinKey(nats.tokenFile)
	if err != nil {
		return badInput("--token-file: %w", err)
	}
	nc, err := nats.connect(ctx, key, nil, "worker "+o.name, a.opts.ca, log)
	if _, said := errors.AsType[*exitError](err); said {
		return err
	}
	if err != nil {
		return &exitError{code: exitUnreachable, msg: err.Error(), err: err}
	}
	defer nc.Close()
	shelf, name, err := a.workerStore(ctx, nc, o.name, store)
	if err != nil {
		return err
	}
	logs, err := bus.AttachLogs(nc, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, logs.Close()) }()
	log.Info("worker starts", "node", o.name, "nats", redactURLs(nats.url), "store", name)
	return a.work(ctx, o, workerParts{nc: nc, logs: logs, store: shelf, key: key, log: log})
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
