package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/outbid-dev/outbid/orchestrator/policy/registry"
	"github.com/outbid-dev/outbid/worker/inventory"
)

const (
	defaultAPI   = "127.0.0.1:7700"
	defaultLease = 15 * time.Second
	minLease     = 3 * time.Second
	// defaultLeadWait is several times what a leader's lease outlives it.
	defaultLeadWait = 10 * time.Second
)

// commonFlags are the flags that up and serve share.
func commonFlags(cmd *cobra.Command, o *serverOptions) {
	f := cmd.Flags()
	f.StringVar(&o.data, "data", defaultData, "`DIR` for everything that is kept")
	f.StringVar(&o.api, "api", defaultAPI, "`HOST:PORT` of the API; port 0 takes a free one")
	f.StringVar(&o.store, "store", "", "`STORE` of checkpoints: a directory or s3://bucket/prefix?endpoint=URL "+
		"(default: DATA/store)")
	f.StringVar(&o.policy, "policy", registry.Default, "who gets which device: "+strings.Join(registry.Names(), ", "))
	f.StringArrayVar(&o.policyOptions, "policy-option", nil, "`NAME=VALUE` of an option of the policy; see docs/scheduling.md")
	agentFlags(cmd, o)
	f.DurationVar(&o.lease, "lease", defaultLease, "how long a worker may go on without word from this server")
	f.StringVar(&o.readyFile, "ready-file", "", "`FILE` to write, as DATA/server.json, once the server is ready")
	f.StringVar(&o.tokens, "tokens", "", "`FILE` of the tokens of people and tools ('outbid token new')")
	f.StringVar(&o.limits, "limits", "", "YAML `FILE` of what each tenant may take: log_bytes, blob_bytes, max_weight")
	f.StringVar(&o.tlsCert, "tls-cert", "", "PEM `FILE` of the server's certificate ('outbid tls new')")
	f.StringVar(&o.tlsKey, "tls-key", "", "PEM `FILE` of its key")
	_ = cmd.MarkFlagDirname("data")
	for _, name := range []string{"ready-file", "tokens", "limits", "tls-cert", "tls-key"} {
		_ = cmd.MarkFlagFilename(name)
	}
	complete(cmd, "policy", registry.Names()...)
}

// settle checks what up and serve share and fills in what follows from it.
func (o *serverOptions) settle(flags *pflag.FlagSet) error {
	if o.lease < minLease {
		return badInput("--lease %s: want %s or more, or every hiccup ends a trial", o.lease, minLease)
	}
	if _, _, err := o.newPolicy(); err != nil {
		return err
	}
	if _, err := o.agentCommands(); err != nil {
		return err
	}
	o.leadWait = defaultLeadWait
	o.anyPort = !flags.Changed("api")
	if o.nats.keys == "" {
		o.nats.keys = keysDir(o.data)
	}
	if o.name == "" {
		o.name = hostName()
	}
	return nil
}

func (a *app) upCommand() *cobra.Command {
	var o serverOptions
	var workers, natsPort int
	var devices []string
	var trials trialOptions
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Run everything on this machine: server, NATS, store and workers",
		Long: `Up is the whole of Outbid in one process: NATS with JetStream, the ledger, the API, a directory for checkpoints,
and one worker, or more with --workers. Everything is kept in --data; the next up goes on where this one stopped.

Ctrl-C lets trials save and stops in order; a second one ends at once, and nothing that was acknowledged is lost.

With --while-clients it also stops, as with Ctrl-C, when the last program that uses it has ended, however that ended.
Programs that count are those that found it by its directory: the SDK, and followers such as 'outbid watch'. The SDK
starts its servers so.

--devices is a list, separated by commas, of auto, gpu, cpu, TYPE:COUNT and TYPE:COUNT@SPEED; those with a count are
declared and need not exist; what is found is claimed, so that a second worker of this machine waits for it. Given
several times, the i-th is for the i-th worker.`,
		Example: `  outbid up
  outbid up --devices cpu:4
  outbid up --workers 2 --devices cpu:1 --devices slow:1@0.5
  outbid up --data /srv/outbid --api 127.0.0.1:0 --ready-file ready.json`,
		Args:              exactly(),
		ValidArgsFunction: cobra.NoFileCompletions,
		Annotations:       map[string]string{ownInterrupts: "drains"},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.settle(cmd.Flags()); err != nil {
				return err
			}
			if !cmd.Flags().Changed("log-level") {
				a.opts.logLevel = "warn" // what goes well shows in listings
			}
			if natsPort < 0 || natsPort > 65535 {
				return badInput("--nats-port %d: want a port, or 0 for a free one", natsPort)
			}
			o.nats.host, o.nats.port = "127.0.0.1", natsPort
			var err error
			if err := trials.check(); err != nil {
				return err
			}
			if workers > 0 {
				if err := trials.decide(o.tokens != ""); err != nil {
					return err
				}
			}
			if env := a.getenv("OUTBID_DEVICES"); env != "" && len(devices) == 0 {
				devices = []string{env}
			}
			if o.workers, err = localWorkers(o.data, workers, devices, trials); err != nil {
				return err
			}
			return a.untilDone(cmd.Context(), func(ctx context.Context) error {
				return a.runUp(ctx, o)
			})
		},
	}
	commonFlags(cmd, &o)
	f := cmd.Flags()
	f.BoolVar(&o.whileClients, "while-clients", false, "stop when the last program that uses this server has ended")
	f.IntVar(&workers, "workers", 1, "how many workers run in this process")
	f.StringArrayVar(&devices, "devices", nil, "`DEVICES` of a worker, such as gpu, cpu:4 or v100:2@0.5 (environment: "+
		"OUTBID_DEVICES; default auto)")
	trials.flags(cmd)
	f.IntVar(&natsPort, "nats-port", 0, "port of NATS on this machine; 0 takes a free one")
	return cmd
}

// runUp runs the server until ctx ends or, if that is asked for, until its last client has gone.
func (a *app) runUp(ctx context.Context, o serverOptions) error {
	if !o.whileClients {
		return a.runServer(ctx, o, a.greetUp)
	}
	ctx, stop, err := a.whileClients(ctx, o.data)
	if err != nil {
		return err
	}
	defer stop()
	err = a.runServer(ctx, o, a.greetUp)
	if errors.Is(err, context.Canceled) && errors.Is(context.Cause(ctx), errNoClients) {
		return nil
	}
	return err
}

// localWorkers makes the options of the workers of one process.
func localWorkers(data string, n int, devices []string, trials trialOptions) ([]workerOptions, error) {
	switch {
	case n < 0:
		return nil, badInput("--workers %d: want 0 or more", n)
	case len(devices) > 1 && len(devices) != n:
		return nil, badInput("--devices was given %d times for %d workers: give it once, or once for each", len(devices), n)
	}
	list := make([]workerOptions, n)
	for i := range list {
		o := workerOptions{name: "local", devices: "auto", trials: trials}
		if n > 1 {
			o.name += "-" + strconv.Itoa(i+1)
		}
		switch len(devices) {
		case 0:
		case 1:
			o.devices = devices[0]
		default:
			o.devices = devices[i]
		}
		items, err := inventory.Parse(o.devices)
		if err != nil {
			return nil, badInput("--devices: %w", err)
		}
		for _, item := range items {
			if n > 1 && item.Count == 0 {
				return nil, badInput("--devices %q: %d workers on one machine would all hold its devices; give each its own, "+
					"such as --devices cpu:1", o.devices, n)
			}
		}
		if o.dir, err = filepath.Abs(filepath.Join(data, "workers", o.name)); err != nil {
			return nil, fmt.Errorf("--data: %w", err)
		}
		list[i] = o
	}
	return list, nil
}

// greetUp says where things are and what to do next.
func (a *app) greetUp(s *server) {
	var parts []string
	for _, w := range s.opts.workers {
		parts = append(parts, fmt.Sprintf("%s (%s)", w.name, countDevices(w.devices)))
	}
	with := "no worker"
	if len(parts) > 0 {
		with = "worker " + strings.Join(parts, ", ")
	}
	a.printf("outbid %s is up at %s with %s\n", a.version, s.api.URL(), with)
	a.printf("data is in %s\n", s.opts.data)
	a.printf("next: outbid init && outbid run sweep.yaml\n")
}

// untilDone runs a server or worker until it ends by itself or Ctrl-C asks it to; then it is done, not interrupted.
func (a *app) untilDone(ctx context.Context, run func(context.Context) error) error {
	ctx, stop := a.untilInterrupted(ctx)
	defer stop()
	told := context.AfterFunc(ctx, func() {
		if errors.Is(context.Cause(ctx), errInterrupted) {
			a.notef("stopping once trials have saved; Ctrl-C again ends at once")
		}
	})
	defer told()
	err := run(ctx)
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		return nil
	}
	return err
}
