package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/outbid-dev/outbid/orchestrator/limits"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/registry"
	"github.com/outbid-dev/outbid/orchestrator/server"
	"github.com/outbid-dev/outbid/worker"
)

const (
	defaultAPI   = "127.0.0.1:7700"
	defaultLease = server.DefaultLease
)

// serverFlags has the flags of up and serve.
type serverFlags struct {
	server.Config
	// policyOptions are NAME=VALUE, bidders NAME=COMMAND.
	policyOptions, bidders []string
	ledgerKeep             string
}

// commonFlags adds the flags that up and serve share.
func (sv *serverCommands) commonFlags(cmd *cobra.Command, o *serverFlags) {
	names := sv.edition.Policies.Names()
	f := cmd.Flags()
	f.StringVar(&o.Data, "data", defaultData, "`DIR` for all data")
	f.StringVar(&o.API, "api", defaultAPI, "`HOST:PORT` of the API; port 0 chooses a free one")
	f.StringVar(&o.Store, "store", "", "`STORE` of checkpoints: a directory or s3://bucket/prefix?endpoint=URL "+
		"(default: DATA/store)")
	f.StringVar(&o.Policy, "policy", registry.Default, "policy that gives devices to trials: "+strings.Join(names, ", "))
	f.StringArrayVar(&o.policyOptions, "policy-option", nil, "`NAME=VALUE` of an option of the policy; see docs/reference/policies.md")
	sv.bidderFlags(cmd, o)
	f.DurationVar(&o.Lease, "lease", defaultLease, "how long a worker continues without contact to this server")
	f.StringVar(&o.ledgerKeep, "ledger-keep", "30d", "`TIME` until the ledger moves to the store")
	f.BoolVar(&o.AcceptLedgerLoss, "accept-ledger-loss", false, "start although the ledger has lost acknowledged data, and give up that data for good; first "+
		"stop the workers and copy NATS's files (docs/operate/troubleshoot.md)")
	f.StringVar(&o.ReadyFile, "ready-file", "", "`FILE` to write, as DATA/server.json, once the server is ready")
	f.StringVar(&o.Tokens, "tokens", "", "`FILE` with the tokens of users and tools ('outbid token new')")
	f.StringVar(&o.Limits, "limits", "", "YAML `FILE` with each tenant's limits (default: those that 'outbid tenant show NAME' prints)")
	f.StringVar(&o.Prices, "prices", "", "YAML `FILE` with the prices of devices")
	f.IntVar(&o.Samplers, "samplers", server.DefaultSamplers, "how many tuners of all tenants may run as separate processes at once")
	f.StringVar(&o.TLSCert, "tls-cert", "", "PEM `FILE` of the server's certificate ('outbid tls new')")
	f.StringVar(&o.TLSKey, "tls-key", "", "PEM `FILE` of its key")
	_ = cmd.MarkFlagDirname("data")
	for _, name := range []string{"ready-file", "tokens", "limits", "prices", "tls-cert", "tls-key"} {
		_ = cmd.MarkFlagFilename(name)
	}
	complete(cmd, "policy", names...)
}

// parse parses the flags that up and serve share. The server checks their values.
func (o *serverFlags) parse(flags *pflag.FlagSet) error {
	options, err := policy.ParseOptions(o.policyOptions)
	if err != nil {
		return badInput("--policy-option: %w", err)
	}
	o.PolicyOptions = options.Given()
	if o.Bidders, err = bidderCommands(o.bidders); err != nil {
		return err
	}
	if o.LedgerKeep, err = parseKeep(o.ledgerKeep); err != nil {
		return badInput("--ledger-keep: %w", err)
	}
	o.AnyPort = !flags.Changed("api")
	return nil
}

// parseKeep parses how long the ledger is kept in NATS.
func parseKeep(text string) (time.Duration, error) {
	switch text {
	case "":
		return server.DefaultLedgerKeep, nil
	case limits.None:
		return server.KeepLedger, nil
	}
	return parseLife(text)
}

// upGrow is up's default for the option grow. On one machine, trials that can use more devices need not wait minutes
// for the end of their leases.
const upGrow = "10"

// setGrowDefault sets the option grow for policies that have it, unless it is given.
func (o *serverFlags) setGrowDefault() {
	if _, given := o.PolicyOptions["grow"]; given || o.Policy != "themis" && o.Policy != "outbid" {
		return
	}
	if o.PolicyOptions == nil {
		o.PolicyOptions = map[string]string{}
	}
	o.PolicyOptions["grow"] = upGrow
}

func (sv *serverCommands) upCommand() *cobra.Command {
	var o serverFlags
	var workers, natsPort int
	var devices []string
	var rate string
	var trials server.TrialConfig
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Run everything on this machine: server, NATS, store and workers",
		Long: `Up runs all of Outbid in one process: NATS with JetStream, the ledger, the API, a directory for checkpoints,
and one worker, or more with --workers. All data is in --data; the next 'outbid up' continues from there.

Ctrl-C lets trials save and stops the server; a second Ctrl-C stops it at once. Neither loses acknowledged data.

With --while-clients it also stops, as with Ctrl-C, when the last program that uses it has ended in any way. Only
programs that found the server by its directory count: the SDK, and followers such as 'outbid watch'. The SDK starts
its servers with this flag.

--devices is a list, separated by commas, of auto, gpu, cpu, TYPE:COUNT and TYPE:COUNT@SPEED. Devices with a count are
declared and need not exist. Devices that are found are claimed, so that a second worker on this machine waits for
them. If the flag is repeated, the i-th value is for the i-th worker.

Devices that have been free for 10 s, and for which no trial waits, are given to running trials that can use more. With
--policy-option grow=0 these trials wait until their leases end, as under 'outbid serve'.`,
		Example: `  outbid up
  outbid up --devices cpu:4
  outbid up --workers 2 --devices cpu:1 --devices slow:1@0.5
  outbid up --data /srv/outbid --api 127.0.0.1:0 --ready-file ready.json`,
		Args:              exactArgs(),
		ValidArgsFunction: cobra.NoFileCompletions,
		Annotations:       map[string]string{ownInterrupts: "drains", globalFlags: globalLog},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.parse(cmd.Flags()); err != nil {
				return err
			}
			o.setGrowDefault()
			if !cmd.Flags().Changed("log-level") {
				sv.opts.logLevel = "warn" // listings show normal progress
			}
			if natsPort < 0 || natsPort > 65535 {
				return badInput("--nats-port %d: want a port, or 0 for a free one", natsPort)
			}
			o.NATS.Listen = net.JoinHostPort("127.0.0.1", strconv.Itoa(natsPort))
			if env := sv.getenv("OUTBID_DEVICES"); env != "" && len(devices) == 0 {
				devices = []string{env}
			}
			var err error
			if o.Workers, err = localWorkers(workers, devices, trials); err != nil {
				return err
			}
			if err := limitAverages(o.Workers, rate); err != nil {
				return err
			}
			o.Alone = len(o.Workers) > 0
			return sv.untilDone(cmd.Context(), func(ctx context.Context) error {
				return sv.runUp(ctx, o)
			})
		},
	}
	sv.commonFlags(cmd, &o)
	f := cmd.Flags()
	f.BoolVar(&o.WhileClients, "while-clients", false, "stop when the last program that uses this server has ended")
	f.IntVar(&workers, "workers", 1, "number of workers in this process")
	f.StringArrayVar(&devices, "devices", nil, "`DEVICES` of a worker, such as gpu, cpu:4 or v100:2@0.5 (environment: "+
		"OUTBID_DEVICES; default auto)")
	trialFlags(cmd, &trials)
	averageRateFlag(cmd, &rate, "")
	f.IntVar(&natsPort, "nats-port", 0, "port of NATS on this machine; 0 chooses a free one")
	return cmd
}

// runUp runs the server until ctx ends or, with --while-clients, until its last client has gone.
func (sv *serverCommands) runUp(ctx context.Context, o serverFlags) error {
	if !o.WhileClients {
		return sv.runServer(ctx, o.Config, sv.greetUp)
	}
	ctx, stop, err := server.WhileClients(ctx, o.Data, sv.now, func() {
		sv.notef("the last client has gone: stopping once trials have saved")
	})
	if err != nil {
		return err
	}
	defer stop()
	err = sv.runServer(ctx, o.Config, sv.greetUp)
	if errors.Is(err, context.Canceled) && errors.Is(context.Cause(ctx), server.ErrNoClients) {
		return nil
	}
	return err
}

// runServer starts a server, prints that it is ready, and runs it until ctx ends or it fails.
func (sv *serverCommands) runServer(ctx context.Context, cfg server.Config, greet func(server.Config, *server.Server)) (err error) {
	tuneGC()
	if cfg.Logger, err = sv.logger(); err != nil {
		return err
	}
	cfg.Version, cfg.Now, cfg.NATS.CA, cfg.Policies = sv.version, sv.now, sv.opts.ca, sv.edition.Policies
	cfg.WhatIf = simulation{sv.edition.Policies}
	cfg.Note = func(line string) { sv.notef("%s", line) }
	s, err := server.Open(ctx, cfg)
	if err != nil {
		if ctx.Err() != nil {
			return nil //nolint:nilerr // it ended as requested
		}
		return err
	}
	err = s.Run(ctx, func() { greet(cfg, s) })
	return errors.Join(err, s.Close())
}

// localWorkers returns the configuration of the workers in this process.
func localWorkers(n int, devices []string, trials server.TrialConfig) ([]server.WorkerConfig, error) {
	switch {
	case n < 0:
		return nil, badInput("--workers %d: want 0 or more", n)
	case len(devices) > 1 && len(devices) != n:
		return nil, badInput("--devices was given %d times for %d workers: give it once, or once for each", len(devices), n)
	}
	list := make([]server.WorkerConfig, n)
	for i := range list {
		w := server.WorkerConfig{Name: "local", Trials: trials}
		if n > 1 {
			w.Name += "-" + strconv.Itoa(i+1)
		}
		switch len(devices) {
		case 0:
		case 1:
			w.Devices = devices[0]
		default:
			w.Devices = devices[i]
		}
		list[i] = w
	}
	return list, nil
}

// limitAverages sets the averaging rate of workers on the server's machine.
func limitAverages(workers []server.WorkerConfig, rate string) error {
	perSecond, err := averageRate(rate, worker.AverageRateBeside)
	for i := range workers {
		workers[i].AverageRate = perSecond
	}
	return err
}

// greetUp prints the server's addresses and a next command.
func (sv *serverCommands) greetUp(cfg server.Config, s *server.Server) {
	var parts []string
	for _, w := range cfg.Workers {
		parts = append(parts, fmt.Sprintf("%s (%s)", w.Name, countDevices(w.Devices)))
	}
	with := "no worker"
	if len(parts) > 0 {
		with = "worker " + strings.Join(parts, ", ")
	}
	sv.printf("outbid %s is up at %s with %s\n", sv.version, s.URL(), with)
	sv.printf("data is in %s, the dashboard at %s\n", cfg.Data, pageURL(s.URL(), ""))
	sv.printf("next: outbid init && outbid run sweep.yaml\n")
}
