package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/outbid-dev/outbid/orchestrator/bus"
	"github.com/outbid-dev/outbid/orchestrator/server"
	"github.com/outbid-dev/outbid/worker"
	"github.com/outbid-dev/outbid/worker/inventory"
)

// workerCommands start workers and let them join and leave a cluster.
type workerCommands struct {
	*process
	// checkWorker checks the configuration of worker, after its flags are set.
	checkWorker func() error
}

func (wk *workerCommands) workerCommand() *cobra.Command {
	var cfg server.LoneWorkerConfig
	var rate, podToken string
	cmd := &cobra.Command{
		Use:   "worker",
		Short: "Offer this machine's devices to a server",
		Long: `Worker connects to a server's NATS, offers this machine's GPUs (or CPU cores if it has none), and runs trials for
the server. Ctrl-C or SIGTERM lets trials save, returns them to the server, and ends the worker. A trial that has not
saved after --drain-timeout continues elsewhere from its last checkpoint. A second Ctrl-C ends the worker at once.

Each worker has its own identity. On other machines 'outbid worker join' creates it, and --credentials names its
directory. On the server's machine, as the same user, it needs no credentials: a worker that finds a server in ./.outbid
or ~/.outbid, or the keys in --keys, creates its identity itself. In a Kubernetes pod, --service-account-token joins the
server of --server at every start; see 'outbid worker join'.

The worker does not have credentials for the store. For every checkpoint and function of its trials it asks the server,
which returns a URL that is valid for only that object and a limited time. With --store it accesses the store directly
instead, with this machine's credentials or over a shared file system, and may then read and write all objects.

--devices is a list, separated by commas, of auto, gpu, cpu, TYPE:COUNT and TYPE:COUNT@SPEED. Devices with a count are
declared and need not exist. In a container the worker offers the CPUs and the memory that the container may use,
without fractions of a CPU.

Trials see only a part of the worker's environment: search paths of programs and modules, the language, and variables
for GPUs. --pass-env names further variables, such as HF_HOME.

If the server requires tokens, each trial runs as a separate user. This needs root, or the capabilities CAP_SETUID,
CAP_SETGID, CAP_CHOWN and CAP_KILL; otherwise the worker fails unless --trust-trials is given.`,
		Example: `  outbid worker
  outbid worker --credentials /etc/outbid/worker
  outbid worker --keys .outbid/keys --nats nats://127.0.0.1:4222 --name small --devices cpu:2`,
		Args:              exactArgs(),
		ValidArgsFunction: cobra.NoFileCompletions,
		Annotations:       map[string]string{ownInterrupts: "drains", globalFlags: "server ca " + globalLog},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if wk.opts.tokenFile != "" {
				return badInput("--token-file: is for commands that call a server; 'outbid worker join' makes the credentials of a worker")
			}
			if cfg.Worker.DrainTimeout <= 0 {
				return badInput("--drain-timeout %s: want more than 0", cfg.Worker.DrainTimeout)
			}
			otherwise := int64(0)
			if cfg.Credentials == "" && podToken == "" { // it uses the keys of a server on this machine
				otherwise = worker.AverageRateBeside
			}
			var err error
			if cfg.Worker.AverageRate, err = averageRate(rate, otherwise); err != nil {
				return err
			}
			return wk.untilDone(cmd.Context(), func(ctx context.Context) error {
				return wk.runWorker(ctx, cfg, podToken)
			})
		},
	}
	workerFlags(cmd, &cfg.Worker, &cfg.NATS)
	drainTimeoutFlag(cmd, &cfg.Worker.DrainTimeout)
	averageRateFlag(cmd, &rate, " on the server's machine, without --credentials; else 0")
	cmd.Flags().StringVar(&cfg.Credentials, "credentials", "", "`DIR` that 'outbid worker join' wrote")
	serviceAccountFlag(cmd, &podToken)
	cmd.Flags().StringVar(&cfg.Store, "store", "", "`STORE` of checkpoints to access directly, without the server: a directory that all "+
		"machines share, or s3://bucket/prefix?endpoint=URL with this machine's credentials")
	_ = cmd.MarkFlagDirname("credentials")
	wk.checkWorker = func() error {
		_, err := averageRate(rate, 0)
		return errors.Join(err, cfg.Check())
	}
	wk.configurable(cmd)
	cmd.AddCommand(wk.workerTokenCommand(), wk.workerJoinCommand(), wk.workerRemoveCommand())
	return cmd
}

// drainTimeoutFlag adds the flag for the time that trials have to save.
func drainTimeoutFlag(cmd *cobra.Command, to *time.Duration) {
	cmd.Flags().DurationVar(to, "drain-timeout", worker.DefaultDrainTimeout, "how long trials may take to save when the "+
		"worker is stopped; its supervisor must wait longer (Kubernetes: terminationGracePeriodSeconds, systemd: TimeoutStopSec)")
}

// workerFlags adds the flags for a worker's devices and the address of NATS.
func workerFlags(cmd *cobra.Command, o *server.WorkerConfig, nats *server.NATSConfig) {
	f := cmd.Flags()
	f.StringVar(&nats.URL, "nats", "", "`URL` of NATS, or several separated by commas (default: from the credentials, else "+
		"that of the server running from ./.outbid or ~/.outbid, else "+bus.DefaultURL+")")
	f.StringVar(&nats.Keys, "keys", "", "`DIR` of the server's keys, on its own machine (default: that server's)")
	natsFlags(cmd, nats)
	f.StringVar(&o.Name, "name", "", "unique name of this node (default: from the credentials, else the machine's)")
	f.StringVar(&o.Devices, "devices", "auto", "`DEVICES` to offer, such as gpu, cpu:4 or v100:2@0.5")
	f.StringVar(&o.Dir, "dir", "", "`DIR` for scratch files (default: ./.outbid/workers/NAME)")
	trialFlags(cmd, &o.Trials)
	f.StringToStringVar(&o.Labels, "label", nil, "`NAME=VALUE` shown in listings; may be repeated")
	f.StringVar(&o.SpotNotice, "spot-notice", "", "`WHERE` the notice appears that this machine is about to be taken "+
		"away: ec2, gce, azure, file:PATH or a URL; trials then save and continue on other nodes")
	_ = cmd.MarkFlagDirname("keys")
	_ = cmd.MarkFlagDirname("dir")
}

// findNATS fills in missing settings from the server of ./.outbid or ~/.outbid, which must be running if nothing was
// given.
func (wk *workerCommands) findNATS(o *server.NATSConfig) error {
	dir := wk.dataDir()
	if dir == "" {
		if o.URL == "" {
			o.URL = bus.DefaultURL
		}
		return nil
	}
	if o.URL != "" {
		if f, running, err := server.ReadFile(dir); err == nil && running && o.URL == f.NATS {
			o.Keys = cmp.Or(o.Keys, f.Keys)
		}
		return nil
	}
	f, err := runningServer(dir)
	if err != nil {
		return err
	}
	o.URL, o.Keys = f.NATS, cmp.Or(o.Keys, f.Keys)
	return nil
}

// runWorker connects to NATS and runs one worker.
func (wk *workerCommands) runWorker(ctx context.Context, cfg server.LoneWorkerConfig, podToken string) (err error) {
	tuneGC()
	if cfg.Logger, err = wk.logger(); err != nil {
		return err
	}
	cfg.Version, cfg.NATS.CA = wk.version, wk.opts.ca
	switch {
	case podToken != "":
		if err := wk.joinAsPod(ctx, podToken, &cfg); err != nil {
			return err
		}
	case cfg.Credentials == "":
		if err := wk.findNATS(&cfg.NATS); err != nil {
			return err
		}
	}
	w, err := server.OpenWorker(ctx, cfg)
	if err != nil {
		return err
	}
	return errors.Join(w.Run(ctx), w.Close())
}

// countDevices describes a worker's devices.
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
	for _, t := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%d %s", counts[t], t))
	}
	return strings.Join(parts, " + ")
}
